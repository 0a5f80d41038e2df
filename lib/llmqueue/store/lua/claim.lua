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
-- One that waits for another queue's turn asks not more often than this.
local LEAST_SHARE_WAIT_MS = 50

if not C or not queue_cfg(q) then return {POLL_MS, 'unconfigured', '', {}} end
H.run_sometimes()

local function refuse(wait, reason, limit)
  finish_script()
  return {ceil(wait), reason, limit or '', {}}
end

-- The first moment that no other waiting claim of the queue was told: about one claim a grant in
-- all. A worker that asks again before its time keeps its place among those who wait.
local waiting = key('told', q)
local told = call('ZSCORE', waiting, worker)
local function tell(wait, spacing)
  call('ZREMRANGEBYSCORE', waiting, '-inf', int(now - 100))
  local before = call('ZCOUNT', waiting, '-inf', told and '(' .. told or '+inf')
  local mine = wait + before * V.spacing(q, spacing)
  call('ZADD', waiting, int(now + mine), worker)
  V.want(q, mine)
  return mine
end

local seen = call('HGET', P .. 'w:' .. worker, 'd')
call('HSET', P .. 'w:' .. worker, 'c', int(now))
if told then call('ZREM', waiting, worker) end
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

local walks = {}
local function leave_lanes()
  for _, walk in pairs(walks) do Lanes.leave(walk) end
  walks = {}
end

local tenants_limited = N.limits(q)
local front_empty = {}
local function front_head(band)
  if front_empty[band] then return nil end
  local name = key('front', q, band)
  local ids = call('ZRANGE', name, 0, (clean and not tenants_limited) and 0 or 20)
  front_empty[band] = #ids == 0
  local found, closed, closed_until = nil, {}, nil
  for _, id in ipairs(ids) do
    local job = J.load(id)
    local suspect = job and (tonumber(job.k) or 0) > 0
    local at = job and N.closed_until(q, job.t or '')
    if not job then
      call('ZREM', name, id)
    elseif at then
      if not suspect then closed[#closed + 1], closed_until = job, at end
    elseif clean or not suspect then
      found = job
      break
    end
  end
  if #closed > 0 then
    leave_lanes()
    Lanes.send_home(closed, closed_until)
  end
  return found
end

local function lane_head(band)
  local walk = walks[band] or Lanes.walk(q, band, max(slots, 1))
  walks[band] = walk
  while H.left > 0 do
    local turn = Lanes.turn(walk)
    if not turn then return nil end
    local closed_until = N.closed_until(q, turn.tenant)
    if closed_until then
      H.left = H.left - 1
      Lanes.park_head(walk, closed_until)
    else
      local job = alive_or_bury(turn.ids[turn.taken + 1])
      if job then
        job.walk = walk
        return job
      end
      Lanes.take(walk, false)
    end
  end
end

-- Is a band at its own limit of calls in flight?
local of_bands = queue_cfg(q).bands
local function full(band)
  local most = of_bands and of_bands[band + 1]
  return most and most > 0 and J.held_in(q, band) >= most
end

local some_band_full
local function filled_bands()
  local bands = {}
  some_band_full = false
  for band = 0, 3 do
    if call('EXISTS', key('lanes', q, band), key('front', q, band)) > 0 then
      if full(band) then some_band_full = true else bands[#bands + 1] = band end
    end
  end
  return bands
end

local function first_in(band) return front_head(band) or lane_head(band) end

-- Every 20th grant is for the next lower band in turn, so that none waits for ever.
local turn_of, granted_so_far = 'gb:' .. q, 'gc:' .. q
local function lower_band_head(bands)
  local after = R.num(turn_of)
  local band = bands[2]
  for i = 2, #bands do
    if bands[i] > after then band = bands[i]; break end
  end
  R.set(turn_of, band)
  return first_in(band)
end

local bands = filled_bands()
local function head()
  if of_bands then bands = filled_bands() end
  if #bands > 1 and R.num(granted_so_far) % 20 == 19 then
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
  if job.walk then Lanes.take(job.walk, true) else call('ZREM', key('front', q, job.b), job.id) end
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
  R.set(granted_so_far, R.num(granted_so_far) + 1)
  V.pay(q, V.cost(amounts))
  N.pay(q, job.t or '', 1)
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

-- Why no job is ready, and for how long.
local function none_ready()
  if H.left <= 0 then return 0, 'again' end
  if some_band_full then return 1000, 'in-flight' end
  local parked = tenants_limited and call('ZRANGE', key('parked', q), 0, 0, 'WITHSCORES')
  if parked and parked[2] then return max(1, min(POLL_MS, parked[2] - now)), 'empty' end
  return POLL_MS, 'empty'
end

local grants, wait, reason, limit_name = {}, 0, '', ''
while #grants < slots do
  if C.max_in_flight and in_flight() >= C.max_in_flight then
    wait, reason = 1000, 'in-flight'
    V.want(q, wait)
    break
  end
  local job = head()
  if not job and not H.ran then
    leave_lanes()
    H.run()
    bands, front_empty = filled_bands(), {}
    job = head()
  end
  if not job then
    wait, reason = none_ready()
    break
  end
  local amounts = charge_of(job)
  local large = too_large(amounts)
  if large then
    pop(job)
    leave_lanes()  -- the end of a job may bring new ones into them
    J.finish(job, 'X', 'too large for ' .. large.name)
  else
    local due_in, by, spacing = wait_for(amounts)
    if #grants > 0 then told = nil end
    if by then
      wait, reason, limit_name = tell(due_in, spacing), by.unit, by.name
      break
    end
    if V.ahead(q, V.cost(amounts)) then
      wait, reason = tell(max(LEAST_SHARE_WAIT_MS, V.spacing(q, spacing)), spacing), 'share'
      break
    end
    pop(job)
    if (tonumber(job.k) or 0) > 0 then clean = false end
    grants[#grants + 1] = grant(job, amounts, #grants)
  end
end

leave_lanes()
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
