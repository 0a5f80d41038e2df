-- Hand out jobs whose calls the budget allows now, each with a lease.
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV 1 queue, 2 worker, 3 free slots, 4 credential, 5 '1' if no suspect job runs there,
--   6 random start of the fences
-- Returns {wait ms, reason or '', limit name, grants}; a grant is {id, fence, payload, run, model,
--   tenant, feature, timeout ms, crashes, probe, possible duplicate, correlation id, input, output,
--   output bound, handler, journaled}.
-- Complexity: O(grants x limits) + at most 16 units of housekeeping; while limited also O(window).

local q, worker, slots, credential = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local clean, fence_base = ARGV[5] == '1', ARGV[6]
local POLL_MS = 5000

if not C or not queue_cfg(q) then return {POLL_MS, 'unconfigured', '', {}} end
H.run_sometimes()

local grants, payloads = {}, {}

local function hand_out(job, charge)
  local fence = fence_base .. int(#grants)
  J.move(job, 'L', {x = fence, w = worker, y = charge})
  J.lease(job)
  if (tonumber(job.k) or 0) > 0 then clean = false end
  return fence
end

local function add_grant(job, fence, amounts, probe, payload)
  grants[#grants + 1] = {job.id, fence, payload, (tonumber(job.r) or 0) + 1,
    job.v or '', job.t or '', job.f or '', tonumber(job.T) or -1, tonumber(job.k) or 0,
    probe and 1 or 0, job.d == '1' and 1 or 0, job.C or '',
    amounts.input_tokens, amounts.output_tokens,
    job.H and queue_cfg(q).default_output or tonumber(job.o),
    job.H or '', (job.J or job.Q) and 1 or 0}
end

local function answer(wait, reason, limit)
  if #payloads > 0 then
    local free = #grants - #payloads
    for n, payload in ipairs(call('MGET', unpack(payloads))) do
      grants[free + n][3] = payload or ''
    end
  end
  finish_script()
  return {ceil(wait), reason, limit or '', grants}
end

G.find_place(worker)
local seen = call('HGET', P .. 'w:' .. worker, 'd')
call('HSET', P .. 'w:' .. worker, 'c', int(now))
G.stop_waiting(worker)
if seen and tonumber(seen) > now then return answer(1000, 'draining') end
if J.suspended(q) then return answer(POLL_MS, 'suspended') end

-- Failure jobs cost no budget: nothing that follows holds them up.
for _, job in ipairs(J.failure_jobs(q, slots)) do
  if clean or (tonumber(job.k) or 0) == 0 then
    J.unlist(job)
    add_grant(job, hand_out(job, ''), {input_tokens = 0, output_tokens = 0}, false,
      J.failure_payload(job))
  end
end
local free = #grants
if free > 0 and free == slots then
  J.wake(q)
  return answer(0, '')
end

local wait, reason, pause, breaker_probe = G.closed(worker, credential)
if reason then return answer(wait, reason) end
local probing = pause ~= nil or breaker_probe
if probing then slots = min(slots, free + 1) end
G.refill()

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

-- ---------------------------------------------------------------- grants

local charge_of = G.charging(q)

local function grant(job, amounts)
  G.pay(q, amounts)
  local fence = hand_out(job, J.charge_note(now, amounts))
  payloads[#payloads + 1] = P .. 'd:' .. job.id
  R.set('gc', R.num('gc') + 1)
  G.begin_probe(credential, pause, breaker_probe, job.id .. ' ' .. fence)
  add_grant(job, fence, amounts, probing, '')
end

local function in_flight()
  local n = 0
  for _, queue in ipairs(C.queues) do n = n + J.calling(queue) end
  return n
end

local limit_name = ''
wait, reason = 0, ''
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
  local amounts = charge_of(tonumber(job.i), tonumber(job.o))
  local large = G.too_large(amounts)
  if large then
    pop(job)
    J.finish(job, 'X', 'too large for ' .. large.name)
  else
    local due_in, by, spacing = G.wait_for(amounts)
    if by then
      if #grants > free then G.lose_place() end
      wait, reason, limit_name = G.tell(worker, due_in, spacing), by.unit, by.name
      break
    end
    pop(job)
    grant(job, amounts)
  end
end

for _, turn in pairs(turns) do close(turn, false) end
if #grants == slots then
  wait, reason = 0, ''
  if probing and slots < tonumber(ARGV[3]) then wait, reason = 1000, 'paused' end
  if J.count(q, 'R') > 0 then J.wake(q) end
end
if H.again and reason == 'empty' then wait, reason = 0, 'again' end
return answer(wait, reason, limit_name)
