-- Where jobs are: states, counters, ready lists, leases. The only code that moves a job. What it
-- counts and most of what it puts into sorted sets is written by J.flush(), once a call.
--
-- j:<id> HASH (short names: it is there once for every waiting job):
--   q queue  s state  b band  p priority  t tenant  f feature  c created  n number  l payload bytes
--   i,o estimated input, output tokens  u worst-case nano-USD  v model  h fingerprint
--   T timeout ms  M max attempts  B own back-off  D deadline (active clock)  C correlation id
--   a attempts used  r runs  k crashes  x fence  X fence of a paid earlier run  w worker
--   y what its claim charged "at input output tokens"  e sent at  z cancel asked  Z deadline passed
--   d possible duplicate  A automatic retries of unknown outcomes  no,nt,nm retries by class
--   m why it ended  E ended at  g it is not ready, yet its list entry is still there  G payload: memory is due
--   bi its batch  Y nano-USD of records that were dropped  rs ready since (where not since c)
--   ws waits since (where not since c: it was delayed at first, or was given a new start)
-- of a handler job also (its hash describes the call that is open):
--   H handler  O open call "number name"  N last finished call "fence number"  J has a journal
--   Q names of calls whose outcome is unknown  W waits for the budget "since fence"  F failures reported
-- States: R ready, D delayed, L leased, S sent, V review, F succeeded, X dead, C cancelled, E expired.

local J = {}
-- Filled by _lanes, _tenants, _shares and _batches: whoever moves a job tells them.
local Lanes, N, V, Batches = {}, {}, {}, {}
local FAILURE = '\1failure'  -- handler of a failure job: see _failures.lua
local ENDED = {F = 'succeeded', X = 'dead', C = 'cancelled', E = 'expired'}
local METER_OF_END = {F = 'f:F', X = 'f:X', C = 'f:C', E = 'f:E'}

function J.load(id)
  -- Room for all fields at once: growing the table step by step takes longer than the command.
  local job, found = read_hash(P .. 'j:' .. id, {id = id, q = nil, s = nil, b = nil, p = nil, c = nil, n = nil, l = nil, i = nil,
    o = nil, u = nil, v = nil, t = nil, f = nil, a = nil, r = nil, x = nil, w = nil, y = nil, e = nil})
  return found and job or nil
end

-- Facts and counters of queues, `st:<queue>`: read once a script, written once by J.flush().
local stats
each_call(function() stats = {} end)
local function stats_of(q)
  local known = stats[q]
  if known then return known end
  known = {v = read_hash(key('st', q), {}), dirty = {}}
  stats[q] = known
  return known
end
function J.stat(q, field) return stats_of(q).v[field] end
function J.count(q, field) return tonumber(stats_of(q).v[field]) or 0 end
function J.note(q, field, value)
  local known = stats_of(q)
  known.v[field], known.dirty[field] = value, true
end
function J.bump(q, field, by)
  local known = stats_of(q)
  known.v[field] = (known.v[field] or 0) + by
  known.dirty[field] = true
end
local CHARGED = {requests = 'ch:requests', input_tokens = 'ch:input_tokens',
  output_tokens = 'ch:output_tokens', tokens = 'ch:tokens'}
function J.bump_charged(q, unit, by) J.bump(q, CHARGED[unit], by) end

-- By a person's word, else by the queue's configuration.
function J.suspended(q)
  local said = J.stat(q, 'sus')
  return said == '1' or (queue_cfg(q).suspended and said ~= '0') or false
end

-- Jobs that a worker holds: there is a lease for each.
local HELD = {L = true, S = true}
function J.held(q) return J.count(q, 'L') + J.count(q, 'S') end
-- Of these all that may call the provider.
function J.calling(q) return J.held(q) - J.count(q, 'held_failures') end

-- The same by band: ready jobs, jobs with workers.
local READY_IN = {['0'] = 'R0', ['1'] = 'R1', ['2'] = 'R2', ['3'] = 'R3'}
local HELD_IN = {['0'] = 'H0', ['1'] = 'H1', ['2'] = 'H2', ['3'] = 'H3'}
function J.ready_in(q, band) return J.count(q, READY_IN[int(band)]) end
function J.bump_ready(q, band, by) J.bump(q, READY_IN[band], by) end
function J.held_in(q, band) return J.count(q, HELD_IN[int(band)]) end

-- Time spent by calls in flight: called before their number changes.
function J.clock_busy(q)
  local at = tonumber(J.stat(q, 'bt')) or now
  if now > at then J.bump(q, 'busy', J.calling(q) * (now - at)) end
  if at ~= now or not J.stat(q, 'bt') then J.note(q, 'bt', now) end
end

-- What is written to a sorted set once a script: key -> member -> score, false = removed.
local scored
each_call(function() scored = {} end)
local function put(name, id, score) kept_in(scored, name)[id] = score end

-- How many jobs each worker holds: kept by the only code that changes a state, so it cannot drift.
local hands
each_call(function() hands = {} end)
local function hand(q, worker, by)
  local of_queue = kept_in(hands, q)
  of_queue[worker] = (of_queue[worker] or 0) + by
end

function J.flush()
  for name, members in pairs(scored) do
    local add, drop = {}, {}
    for id, score in pairs(members) do
      if score then
        add[#add + 1], add[#add + 2] = score, id
      else
        drop[#drop + 1] = id
      end
    end
    if #drop > 0 then call('ZREM', name, unpack(drop)) end
    if #add > 0 then call('ZADD', name, unpack(add)) end
  end
  for q, workers in pairs(hands) do
    for worker, by in pairs(workers) do
      local name = key('held', q)
      if by ~= 0 and call('HINCRBY', name, worker, by) <= 0 then call('HDEL', name, worker) end
    end
  end
  for q, known in pairs(stats) do
    local args = {}
    for field in pairs(known.dirty) do
      args[#args + 1], args[#args + 2] = field, known.v[field]
    end
    if #args > 0 then call('HSET', key('st', q), unpack(args)) end
    known.dirty = {}
  end
  scored, hands = {}, {}
end

-- The one place where a job's state changes. `fields` are written with it.
function J.move(job, to, fields)
  local from = job.s
  local held, holds = HELD[from], HELD[to]
  local calls = job.H ~= FAILURE
  if held ~= holds then J.clock_busy(job.q) end
  if held ~= holds and calls then
    local by = holds and 1 or -1
    J.bump(job.q, HELD_IN[job.b], by)
    N.hold(job.q, job.t or '', by)
  end
  if held then hand(job.q, job.w or '', -1) end
  local args = {'s', to}
  if to == 'R' then
    args[3], args[4] = 'rs', now
    local begins = from == 'X' or from == 'V' or from == 'D' and not job.r
    if begins then args[5], args[6] = 'ws', now end
  end
  for name, value in pairs(fields or {}) do
    args[#args + 1], args[#args + 2] = name, value
    job[name] = value
  end
  call('HSET', P .. 'j:' .. job.id, unpack(args))
  job.s = to
  if holds then hand(job.q, job.w, 1) end
  if from ~= to then
    J.bump(job.q, from, -1)
    J.bump(job.q, to, 1)
    if calls and from == 'R' then J.bump_ready(job.q, job.b, -1) end
    if calls and to == 'R' then J.bump_ready(job.q, job.b, 1) end
    if not calls and held ~= holds then J.bump(job.q, 'held_failures', holds and 1 or -1) end
    Events.moved(job, from, to)
    if to == 'V' then M.count(job.q, 'reviews') end
    if to == 'X' or to == 'V' then J.report_failure(job, to) end
  end
  if held and not holds then N.freed(job.q, job.t or '') end
end

local wakes
each_call(function() wakes = {} end)
function J.wake(q) wakes[q] = true end
function J.flush_wakes()
  for q in pairs(wakes) do call('ZADD', key('wake', q), 1, 'm') end
end

-- The list of a lane's ready jobs.
function J.ready_list(q, band, tenant, feature)
  return key('ready', q, band, (tenant or '') .. '\31' .. (feature or ''))
end

-- Write a new job as enqueue was told of it; the caller puts it into its ready list, unless it is
-- delayed.
function J.write_new(q, meta, number)
  local f = meta.f
  f.q, f.b, f.n, f.c, f.l, f.h = q, meta.b, number, now, #meta.payload, meta.h
  f.s = meta.dl and 'D' or 'R'
  if meta.de then f.D = int(active_now() + meta.de) end
  local args = {}
  for name, value in pairs(f) do
    args[#args + 1] = name
    args[#args + 1] = value
  end
  call('HSET', P .. 'j:' .. meta.i, unpack(args))
  call('SET', P .. 'd:' .. meta.i, meta.payload)
  J.bump(q, f.s, 1)
  if f.s == 'R' then J.bump_ready(q, int(meta.b), 1) end
  if meta.de then call('ZADD', P .. 'deadlines', f.D, meta.i) end
  if meta.dl then call('ZADD', key('delayed', q), int(now + meta.dl), meta.i) end
end

-- Taken back by its worker it left its list entry behind (`g`): that is its place again.
local function still_listed(job)
  if not job.g then return false end
  call('HDEL', P .. 'j:' .. job.id, 'g')
  job.g = nil
  J.wake(job.q)
  return true
end

-- Put to the back of its lane (new and due jobs).
function J.append(job)
  if job.H == FAILURE then return J.list_failure(job) end
  if still_listed(job) then return end
  Lanes.list(job, call('RPUSH', J.ready_list(job.q, job.b, job.t, job.f), job.id))
  J.wake(job.q)
end

-- Put to the front of its band, in the order of first arrival (returned jobs).
function J.to_front(job)
  if job.H == FAILURE then return J.list_failure(job) end
  if still_listed(job) then return end
  call('ZADD', key('front', job.q, job.b), job.n, job.id)
  J.wake(job.q)
end

local function too_late(job, fields)
  if not job.Z then return false end
  J.finish(job, 'E', 'deadline passed', fields)
  return true
end

function J.ready_again(job, fields)
  if too_late(job, fields) then return end
  J.move(job, 'R', fields)
  J.to_front(job)
end

function J.delay(job, ms, fields)
  if too_late(job, fields) then return end
  J.move(job, 'D', fields)
  call('ZADD', key('delayed', job.q), ceil(now + ms), job.id)
end

function J.lease(job) put(key('leases', job.q), job.id, now + C.lease_ms) end
function J.drop_lease(job) put(key('leases', job.q), job.id, false) end

-- End a job for good, writing `fields` with it. `listed`: its entry in a ready list stays until a
-- claim meets it. An ended job keeps its fence only where the settlement of that fence ended it.
-- How grave a death is says job.severity, where a settlement said it.
function J.finish(job, state, why, fields, listed)
  fields = fields or {}
  fields.E = now
  if why ~= '' then fields.m = string.sub(why, 1, 64) end
  if listed then fields.g = '1' end
  J.move(job, state, fields)
  M.count(job.q, METER_OF_END[state])
  if state == 'X' then M.count(job.q, 'x:' .. (job.severity or 'ERROR')) end
  J.bump(job.q, 'bytes', -(tonumber(job.l) or 0))
  if job.D then call('ZREM', P .. 'deadlines', job.id) end
  put(key('end', job.q, ENDED[state]), job.id, now)
  if job.bi then Batches.job_ended(job) end
end

-- The digest of an idempotency key outlives its job.
function J.leave_tombstone(job, keep_ms)
  if job.h and keep_ms > 0 then
    call('SET', P .. 'i:' .. job.id, job.h .. ' ' .. ENDED[job.s], 'PX', int(keep_ms))
  end
end

-- A run that is settled again gets the same answer: from the hash of the job that it ended, or from
-- this record. LOST: it was booked at its worst case, and may still be settled.
local LOST = 'lost'
local function outcome_memory() return C and C.outcome_memory_ms or 86400000 end
function J.remember_outcome(fence, state)
  call('SET', P .. 'a:' .. fence, state, 'PX', outcome_memory())
end
-- False: it was lost before.
function J.remember_lost(fence)
  return call('SET', P .. 'a:' .. fence, LOST, 'NX', 'PX', outcome_memory())
end

function J.forget(job)
  if C and (job.x or '') ~= '' and now - job.E < C.outcome_memory_ms then
    J.remember_outcome(job.x, job.s)
  end
  call('UNLINK', P .. 'j:' .. job.id, P .. 'd:' .. job.id, P .. 't:' .. job.id, P .. 'p:' .. job.id)
  if job.H then J.drop_journal(job) end
end

-- Remove an entry that a claim met and whose job is no longer ready.
function J.bury(id, job)
  if not job then return end
  if job.s == 'R' then return end
  if job.g == '2' then
    J.forget(job)
  elseif job.g then
    call('HDEL', P .. 'j:' .. id, 'g')
  end
end

-- Charges of a claim at time `at`, as kept with the lease.
function J.charge_note(at, amounts)
  return string.format('%d %d %d %d', at, amounts.input_tokens, amounts.output_tokens,
    amounts.tokens)
end
function J.charged(job)
  if not job.y then return nil end
  local at, input, output, tokens = string.match(job.y, '^(%d+) (%d+) (%d+) (%d+)$')
  return tonumber(at), {requests = 1, input_tokens = tonumber(input),
    output_tokens = tonumber(output), tokens = tonumber(tokens)}
end

-- Give a claim's whole charge back: nothing was sent.
function J.refund(job)
  local at, charged = J.charged(job)
  if not at then return end
  local amounts = {}
  for unit, amount in pairs(charged) do
    J.bump_charged(job.q, unit, -amount)
    amounts[unit] = -amount
  end
  J.bump(job.q, 'grants', -1)
  W.correct(at, amounts)
  N.pay(job.q, job.t or '', -1)
  V.refund(job.q, charged)
end

-- A lease ended unsent: a heartbeat of it that is still on its way must not bring it back.
function J.gave_back(job)
  call('SET', P .. 'gb:' .. job.x, '1', 'PX', 10 * C.lease_ms)
end

-- Give an unsent job back to the front at no cost.
function J.release(job, fields)
  J.gave_back(job)
  J.drop_lease(job)
  J.refund(job)
  fields = fields or {}
  fields.x, fields.w, fields.y = '', '', ''
  J.ready_again(job, fields)
end

-- Take a waiting job out of its list; true where its entry must stay until a claim meets it.
function J.unlist(job)
  if job.s == 'D' then
    call('ZREM', key('delayed', job.q), job.id)
    return false
  end
  if job.H == FAILURE then return J.unlist_failure(job) end
  return call('ZREM', key('front', job.q, job.b), job.id) == 0
end

-- End a job that waits; of one whose call runs the worker is told.
function J.cancel(job)
  if job.s == 'R' or job.s == 'D' then
    J.finish(job, 'C', 'cancelled', nil, J.unlist(job))
  elseif job.s == 'L' then
    J.drop_lease(job)
    if C then J.refund(job) end
    J.finish(job, 'C', 'cancelled', {x = ''})
  elseif job.s == 'S' then
    call('HSET', P .. 'j:' .. job.id, 'z', '1')
  elseif job.s == 'V' then
    call('ZREM', key('review', job.q), job.id)
    J.finish(job, 'C', 'cancelled in review', {x = ''})
  end
end
