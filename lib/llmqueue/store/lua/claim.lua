-- Hand out jobs whose calls the budget allows now, each with a lease.
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV 1 queue, 2 worker, 3 free slots, 4 credential, 5 '1' if no suspect job runs there,
--   6 random start of the fences
-- Returns {wait ms, reason or '', limit name, grants}; a grant is {id, fence, payload, run, model,
--   tenant, feature, timeout ms, crashes, probe, possible duplicate, correlation id, input, output,
--   output bound, handler, journaled}.
-- Complexity: O(grants x limits) + at most 16 units of housekeeping and 16 entries that are passed
--   over; while limited also O(window).

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
  M.count(q, 'granted')
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

G.find_place(q, worker)
local seen = call('HGET', P .. 'w:' .. worker, 'd')
call('HSET', P .. 'w:' .. worker, 'c', int(now))
G.stop_waiting(q, worker)
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

local wait, reason, pause, breaker_probe = G.closed(q, worker, credential)
if reason then return answer(wait, reason) end
local probing = pause ~= nil or breaker_probe
if probing then slots = min(slots, free + 1) end
G.refill()

-- ---------------------------------------------------------------- the next job in turn

-- Entries of ended jobs and of closed tenants that this claim still passes over. Not of what
-- housekeeping may do: however much that has left to do, ready jobs are handed out.
local passes_left = 16

local function alive_or_bury(id)
  local job = J.load(id)
  if job and job.s == 'R' then return job end
  passes_left = passes_left - 1
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
  while passes_left > 0 do
    local turn = Lanes.turn(walk)
    if not turn then return nil end
    local closed_until = N.closed_until(q, turn.tenant)
    if closed_until then
      passes_left = passes_left - 1
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
    if job or passes_left <= 0 then return job end
    table.remove(bands, 1)
  end
end

local function pop(job)
  if job.walk then Lanes.take(job.walk, true) else call('ZREM', key('front', q, job.b), job.id) end
end

-- ---------------------------------------------------------------- grants

local charge_of = G.charging(q)

local function grant(job, amounts)
  G.pay(q, amounts, job.t or '')
  M.waited(q, now - (tonumber(job.rs) or tonumber(job.c)))
  local fence = hand_out(job, J.charge_note(now, amounts))
  payloads[#payloads + 1] = P .. 'd:' .. job.id
  R.set(granted_so_far, R.num(granted_so_far) + 1)
  G.begin_probe(credential, pause, breaker_probe, job.id .. ' ' .. fence)
  add_grant(job, fence, amounts, probing, '')
end

local function in_flight()
  local n = 0
  for _, queue in ipairs(C.queues) do n = n + J.calling(queue) end
  return n
end

-- Why no job is ready, and for how long.
local function none_ready()
  if passes_left <= 0 then return 0, 'again' end
  if some_band_full then return 1000, 'in-flight' end
  local parked = tenants_limited and call('ZRANGE', key('parked', q), 0, 0, 'WITHSCORES')
  if parked and parked[2] then return max(1, min(POLL_MS, parked[2] - now)), 'empty' end
  return POLL_MS, 'empty'
end

local limit_name = ''
wait, reason = 0, ''
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
  local amounts = charge_of(tonumber(job.i), tonumber(job.o))
  local large = G.too_large(amounts)
  if large then
    pop(job)
    leave_lanes()  -- the end of a job may bring new ones into them
    J.finish(job, 'X', 'too large for ' .. large.name)
  else
    local due_in, by, spacing = G.wait_for(amounts)
    if #grants > free then G.lose_place() end
    if by then
      wait, reason, limit_name = G.tell(q, worker, due_in, spacing), by.unit, by.name
      break
    end
    local turn = G.turn_of_another(q, worker, amounts, spacing)
    if turn then
      wait, reason = turn, 'share'
      break
    end
    pop(job)
    grant(job, amounts)
  end
end

leave_lanes()
if #grants == slots then
  wait, reason = 0, ''
  if probing and slots < tonumber(ARGV[3]) then wait, reason = 1000, 'paused' end
  if J.count(q, 'R') > 0 then J.wake(q) end
end
if H.again and reason == 'empty' then wait, reason = 0, 'again' end
return answer(wait, reason, limit_name)
