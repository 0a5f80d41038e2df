-- One consistent look at a budget, for the planner; does housekeeping first.
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV 1 horizon ms for due jobs, 2 '1' where meters are wanted
-- Returns JSON (see RedisStore.snapshot).
-- Complexity: O(queues x workers) + at most 16 units of housekeeping.

local epoch = call('HGET', KEYS[1], 'epoch')
if not C or not epoch then return encode({epoch = false}) end
H.run()

local MOST_TENANTS, MOST_FEATURES = 16, 4

-- Since when the job that waits longest does: of the jobs that come next, of many tenants and features
-- those whose turn is near.
local function oldest_ready(q)
  local oldest
  for band = 0, 3 do
    local ids = call('ZRANGE', key('front', q, band), 0, 0)
    for _, tenant in ipairs(call('LRANGE', key('lanes', q, band), 0, MOST_TENANTS - 1)) do
      for _, feature in ipairs(call('LRANGE', key('lanes', q, band, tenant), 0, MOST_FEATURES - 1)) do
        ids[#ids + 1] = call('LINDEX', J.ready_list(q, band, tenant, feature), 0) or nil
      end
    end
    for _, id in ipairs(ids) do
      local got = call('HMGET', P .. 'j:' .. id, 'ws', 'c')
      local since = tonumber(got[1] or got[2])
      if since and (not oldest or since < oldest) then oldest = since end
    end
  end
  return oldest
end

local STATES = {'R', 'D', 'L', 'S', 'V', 'F', 'X', 'C', 'E'}
local queues, workers = {}, {}
for _, q in ipairs(C.queues) do
  local cfg = queue_cfg(q)
  if cfg then
    J.clock_busy(q)
    local ready = J.count(q, 'R')
    local waiting, parked = N.waiting(q)
    local states = {}
    for _, s in ipairs(STATES) do states[s] = J.count(q, s) end
    local oldest = oldest_ready(q)
    local reviewed = J.count(q, 'V') > 0 and call('ZRANGE', key('review', q), 0, 0, 'WITHSCORES')[2]
    queues[#queues + 1] = {queue = q, bytes = J.count(q, 'bytes'),
      estimate = tonumber(J.stat(q, 'inr')), review_ms = reviewed and now - reviewed or nil,
      meters = ARGV[2] == '1' and {m = M.read(q), enqueued = J.count(q, 'seq') + J.count(q, 'reported'),
        settled = J.count(q, 'settled'), reclaims = J.count(q, 'reclaims'),
        fenced = J.count(q, 'fenced')} or nil, states = states,
      due = call('ZCOUNT', key('delayed', q), '-inf', int(now + tonumber(ARGV[1]))),
      oldest_ms = oldest and now - oldest or 0, busy_ms = J.count(q, 'busy'),
      grants = J.count(q, 'grants'), enqueued = J.count(q, 'seq'),
      settled = J.count(q, 'settled'),
      settle_ms = J.stat(q, 'settle_at') and now - J.count(q, 'settle_at'),
      suspended = J.suspended(q), held_back = ready - min(ready, N.claimable(q, ready)),
      tenants = waiting, parked = parked, bands = {{J.ready_in(q, 0), J.held_in(q, 0)},
        {J.ready_in(q, 1), J.held_in(q, 1)}, {J.ready_in(q, 2), J.held_in(q, 2)},
        {J.ready_in(q, 3), J.held_in(q, 3)}},
      charged = {requests = J.count(q, 'ch:requests'),
        input_tokens = J.count(q, 'ch:input_tokens'),
        output_tokens = J.count(q, 'ch:output_tokens'),
        tokens = J.count(q, 'ch:tokens')}}
    local counts = S.in_flight_by_worker(q)
    for _, w in ipairs(call('ZRANGE', P .. 'workers', 0, -1)) do
      local v = call('HMGET', P .. 'w:' .. w, 'q', 'n', 'l', 't', 'd', 'i', 'c', 'p')
      if v[1] == q then
        workers[#workers + 1] = {worker = w, queue = q, slots = tonumber(v[2]), in_flight = counts[w] or 0,
          longest_ms = tonumber(v[3]) or 0, age_ms = now - (tonumber(v[4]) or now),
          drain_ms = max(0, (tonumber(v[5]) or 0) - now), pid = tonumber(v[6]) or 0,
          claim_ms = v[7] and now - tonumber(v[7]) or -1, credential = v[8] or ''}
      end
    end
  end
end

local pauses = {}
if R.num('np') > 0 then
  local flat = call('HGETALL', P .. 'pause')
  for i = 1, #flat, 2 do
    local pause = decode(flat[i + 1])
    pauses[#pauses + 1] = {credential = flat[i], kind = pause.k, message = pause.m,
      since_ms = now - pause.s, next_ms = max(0, pause.n - now), probing = T.alive(pause.p)}
  end
end
local limits = {}
for i, limit in ipairs(C.limits) do
  limits[i] = {name = limit.name, declared = limit.limit, effective = L.effective(limit),
    used = W.sum(limit), paced = limit.paced, frees_ms = W.frees_ms(limit)}
end
local all, _, rate, unknown = T.answers()
local breaker, breaker_ms = T.breaker()
finish_script()
return encode({epoch = epoch, queues = queues, workers = workers, pauses = pauses, limits = limits,
  blocked_ms = max(0, R.num('blk') - now), factor = W.factor(now), breaker = breaker,
  breaker_ms = breaker_ms, answers = all, answers_rate = rate, answers_unknown = unknown,
  again = H.again, now_ms = now})
