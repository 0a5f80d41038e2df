-- Hand out jobs whose calls the budget allows now, each with a lease.
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV 1 queue, 2 worker, 3 free slots, 4 credential, 5 '1' if no suspect job runs there,
--   6 random start of the fences
-- Returns {wait ms, reason or '', limit name, grants}; a grant is {id, fence, payload, run, model,
--   tenant, feature, timeout ms, crashes, probe, possible duplicate, correlation id, input, output,
--   output bound}.
-- Complexity: O(grants x limits) + at most 16 units of housekeeping; while limited also O(window).

local q, worker, slots, credential = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local clean, fence_base = ARGV[5] == '1', ARGV[6]
local POLL_MS = 5000

if not C or not queue_cfg(q) then return {POLL_MS, 'unconfigured', '', {}} end
H.run_sometimes()

local function refuse(wait, reason, limit)
  finish_script()
  return {ceil(wait), reason, limit or '', {}}
end

-- The first moment that no other waiting claim was told: about one claim a grant in all. A worker
-- that asks again before its time keeps its place among those who wait.
local told = call('ZSCORE', P .. 'told', worker)
local function tell(wait, spacing)
  call('ZREMRANGEBYSCORE', P .. 'told', '-inf', int(now - 100))
  local before = call('ZCOUNT', P .. 'told', '-inf', told and '(' .. told or '+inf')
  local mine = wait + before * spacing
  call('ZADD', P .. 'told', int(now + mine), worker)
  return mine
end

local seen = call('HGET', P .. 'w:' .. worker, 'd')
call('HSET', P .. 'w:' .. worker, 'c', int(now))
if told then call('ZREM', P .. 'told', worker) end
if seen and tonumber(seen) > now then return refuse(1000, 'draining') end
if J.suspended(q) then return refuse(POLL_MS, 'suspended') end

local pause, probing = T.pause_of(credential), false
if pause then
  if pause.n > now or T.alive(pause.p) then return refuse(max(1000, pause.n - now), 'paused') end
  probing = true
end
local blocked = R.num('blk') - now
if blocked > 0 then
  return refuse(tell(blocked, W.spacing()), 'blocked')
end
local breaker, breaker_wait = T.breaker()
if breaker == 'open' then return refuse(breaker_wait, 'breaker') end
local breaker_probe = breaker == 'half-open'
if probing or breaker_probe then slots = min(slots, 1) end

if R.num('used') > 0 and now - R.num('used') > C.idle_ramp_ms then
  W.ramp_from(now)
  R.set('used', now)
end
W.refill()

-- ---------------------------------------------------------------- the next job in turn

local function alive_or_bury(id)
  local job = J.load(id)
  if job and job.s == 'R' then return job end
  H.left = H.left - 1
  J.bury(id, job)
  return nil
end

local front_empty = {}
local function front_head(band)
  if front_empty[band] then return nil end
  local name = key('front', q, band)
  local ids = call('ZRANGE', name, 0, clean and 0 or 20)
  front_empty[band] = #ids == 0
  for _, id in ipairs(ids) do
    local job = J.load(id)
    if not job then
      call('ZREM', name, id)
    elseif clean or (tonumber(job.k) or 0) == 0 then
      return job
    end
  end
end

-- The lane whose turn it is in a band, with the first entries of its list: with one lane as many as
-- could be granted, else one. `taken` of them are left to be removed by close().
local turns = {}
local function open(band)
  local turn = turns[band]
  if turn then return turn end
  local lanes = key('lanes', q, band)
  local tenant = call('LINDEX', lanes, 0)
  if not tenant then return nil end
  local features = key('lanes', q, band, tenant)
  local feature = call('LINDEX', features, 0)
  local single = call('LLEN', lanes) == 1 and call('LLEN', features) == 1
  local list = key('ready', q, band, tenant .. '\31' .. feature)
  turn = {band = band, tenant = tenant, feature = feature, list = list, single = single, taken = 0,
    ids = call('LRANGE', list, 0, single and max(slots, 1) - 1 or 0)}
  turns[band] = turn
  return turn
end

-- `granted`: the lane had its turn, the next one follows.
local function close(turn, granted)
  turns[turn.band] = nil
  if turn.taken > 0 then call('LPOP', turn.list, turn.taken) end
  if granted and not turn.single or call('EXISTS', turn.list) == 0 then
    J.rotate(q, turn.band, turn.tenant, turn.feature)
  end
end

local function take_from(turn, granted)
  turn.taken = turn.taken + 1
  if turn.taken == #turn.ids then close(turn, granted) end
end

local function lane_head(band)
  while H.left > 0 do
    local turn = open(band)
    if not turn then return nil end
    local job = alive_or_bury(turn.ids[turn.taken + 1])
    if job then
      job.turn = turn
      return job
    end
    take_from(turn, false)
  end
end

local function filled_bands()
  local bands = {}
  for band = 0, 3 do
    if call('EXISTS', key('lanes', q, band), key('front', q, band)) > 0 then
      bands[#bands + 1] = band
    end
  end
  return bands
end

local function first_in(band) return front_head(band) or lane_head(band) end

-- Every 20th grant is for the next lower band in turn, so that none waits for ever.
local function lower_band_head(bands)
  local after = R.num('gb')
  local band = bands[2]
  for i = 2, #bands do
    if bands[i] > after then band = bands[i]; break end
  end
  R.set('gb', band)
  return first_in(band)
end

local bands = filled_bands()
local function head()
  if #bands > 1 and R.num('gc') % 20 == 19 then
    local job = lower_band_head(bands)
    if job then return job end
  end
  while bands[1] do
    local job = first_in(bands[1])
    if job or H.left <= 0 then return job end
    table.remove(bands, 1)
  end
end

local function pop(job)
  if job.turn then take_from(job.turn, true) else call('ZREM', key('front', q, job.b), job.id) end
end

-- ---------------------------------------------------------------- what its call would charge

local input_ratio = (tonumber(J.stat(q, 'inr')) or 1000) / 1000
local learned = C.learned_output and J.count(q, 'outn') >= 20 and tonumber(J.stat(q, 'outq')) or nil
local function charge_of(job)
  local input = ceil(tonumber(job.i) * input_ratio)
  local output = tonumber(job.o)
  local reserved = learned and min(output, ceil(learned)) or output
  return {requests = 1, input_tokens = input, output_tokens = reserved,
    tokens = C.token_rule == 'sum' and input + output or max(input, output)}
end

local levels = {}
for _, limit in ipairs(C.limits) do levels[limit.name] = R.num('p:' .. limit.name) end

local function wait_for(amounts)
  local wait, by, spacing = 0, nil, 0
  local f = W.factor(now)
  for _, limit in ipairs(C.limits) do
    local amount = amounts[limit.unit]
    local rate = W.pace(limit)
    local level = min(levels[limit.name], max(rate * 1000, 2 * amount))
    levels[limit.name] = level
    local window = W.wait(limit, amount)
    local pacer = level < 0 and -level / (rate * f) or 0
    if f < 1 then pacer = min(pacer, 500) end
    local longest = max(window, pacer)
    if longest > wait then wait, by = longest, limit end
    spacing = max(spacing, amount / (rate * f))
  end
  return wait, by, spacing
end

local function too_large(amounts)
  for _, limit in ipairs(C.limits) do
    if L.too_large(limit, amounts[limit.unit]) then return limit end
  end
end

-- ---------------------------------------------------------------- grants

local payloads = {}
local function grant(job, amounts, n)
  local fence = fence_base .. int(n)
  for _, limit in ipairs(C.limits) do
    local amount = amounts[limit.unit]
    W.add(limit, now, amount)
    levels[limit.name] = levels[limit.name] - amount
  end
  for unit, amount in pairs(amounts) do J.bump_charged(q, unit, amount) end
  J.bump(q, 'grants', 1)
  J.move(job, 'L', {x = fence, w = worker, y = J.charge_note(now, amounts)})
  J.lease(job)
  payloads[#payloads + 1] = P .. 'd:' .. job.id
  R.set('gc', R.num('gc') + 1)
  local id_fence = job.id .. ' ' .. fence
  if probing then
    pause.p = id_fence
    T.save_pause(credential, pause)
  end
  if breaker_probe then R.set('brp', id_fence) end
  return {job.id, fence, '', (tonumber(job.r) or 0) + 1,
    job.v or '', job.t or '', job.f or '', tonumber(job.T) or -1, tonumber(job.k) or 0,
    (probing or breaker_probe) and 1 or 0, job.d == '1' and 1 or 0, job.C or '',
    amounts.input_tokens, amounts.output_tokens, tonumber(job.o)}
end

local function in_flight()
  local n = 0
  for _, queue in ipairs(C.queues) do n = n + J.held(queue) end
  return n
end

local grants, wait, reason, limit_name = {}, 0, '', ''
while #grants < slots do
  if C.max_in_flight and in_flight() >= C.max_in_flight then
    wait, reason = 1000, 'in-flight'
    break
  end
  local job = head()
  if not job and not H.ran then
    H.run()
    bands, front_empty = filled_bands(), {}
    job = head()
  end
  if not job then
    wait, reason = POLL_MS, 'empty'
    if H.left <= 0 then wait, reason = 0, 'again' end
    break
  end
  local amounts = charge_of(job)
  local large = too_large(amounts)
  if large then
    pop(job)
    J.finish(job, 'X', 'too large for ' .. large.name)
  else
    local due_in, by, spacing = wait_for(amounts)
    if by then
      if #grants > 0 then told = nil end
      wait, reason, limit_name = tell(due_in, spacing), by.unit, by.name
      break
    end
    pop(job)
    if (tonumber(job.k) or 0) > 0 then clean = false end
    grants[#grants + 1] = grant(job, amounts, #grants)
  end
end

for _, turn in pairs(turns) do close(turn, false) end
for _, limit in ipairs(C.limits) do
  if limit.paced then R.set('p:' .. limit.name, levels[limit.name]) end
end
if #grants > 0 then
  R.set('used', now)
  for n, payload in ipairs(call('MGET', unpack(payloads))) do grants[n][3] = payload or '' end
end
if #grants == slots then
  wait, reason = 0, ''
  if (probing or breaker_probe) and slots < tonumber(ARGV[3]) then wait, reason = 1000, 'paused' end
  if J.count(q, 'R') > 0 then J.wake(q) end
end
if H.again and reason == 'empty' then wait, reason = 0, 'again' end
finish_script()
return {ceil(wait), reason, limit_name, grants}
