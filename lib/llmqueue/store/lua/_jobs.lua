-- Where jobs are: states, counters, ready lists, leases. The only code that moves a job.
--
-- j:<id> HASH (short names: it is there once for every waiting job):
--   q queue  s state  b band  p priority  t tenant  f feature  c created  n number  l payload bytes
--   i,o estimated input, output tokens  u worst-case nano-USD  v model  h fingerprint
--   T timeout ms  M max attempts  B own back-off  D deadline (active clock)  C correlation id
--   a attempts used  r runs  k crashes  x fence  X fence of a paid earlier run  w worker
--   y what its claim charged "at input output tokens"  e sent at  z cancel asked  Z deadline passed
--   d possible duplicate  A automatic retries of unknown outcomes  no,nt,nm retries by class
--   m why it ended  E ended at  g its list entry is still there  G payload: memory is due
-- States: R ready, D delayed, L leased, S sent, V review, F succeeded, X dead, C cancelled, E expired.

local J = {}
local ENDED = {F = 'succeeded', X = 'dead', C = 'cancelled', E = 'expired'}

function J.load(id)
  local flat = call('HGETALL', P .. 'j:' .. id)
  if #flat == 0 then return nil end
  local job = {id = id}
  for i = 1, #flat, 2 do job[flat[i]] = flat[i + 1] end
  return job
end

-- Counters of queues, flushed once: st:<queue>.
local counters = {}
function J.bump(q, field, by)
  local c = counters[q]
  if not c then c = {}; counters[q] = c end
  c[field] = (c[field] or 0) + by
end
function J.pending(q, field) return counters[q] and counters[q][field] or 0 end
function J.flush()
  for q, fields in pairs(counters) do
    local name = key('st', q)
    for field, by in pairs(fields) do
      if by ~= 0 then call('HINCRBY', name, field, int(by)) end
    end
  end
  counters = {}
end

-- Time spent by calls in flight: called before the number of leases changes.
local clocked = {}
function J.clock_busy(q)
  if clocked[q] then return end
  clocked[q] = true
  local name = key('st', q)
  local at = tonumber(call('HGET', name, 'bt')) or now
  local n = call('ZCARD', key('leases', q))
  if now > at then J.bump(q, 'busy', n * (now - at)) end
  call('HSET', name, 'bt', int(now))
end

-- The one place where a job's state changes. `fields` are written with it.
function J.move(job, to, fields)
  local from = job.s
  local args = {'s', to}
  for name, value in pairs(fields or {}) do
    args[#args + 1] = name
    args[#args + 1] = value
    job[name] = value
  end
  call('HSET', P .. 'j:' .. job.id, unpack(args))
  job.s = to
  if from ~= to then
    J.bump(job.q, from, -1)
    J.bump(job.q, to, 1)
  end
end

local wakes = {}
function J.wake(q) wakes[q] = true end
function J.flush_wakes()
  for q in pairs(wakes) do call('ZADD', key('wake', q), 1, 'm') end
end

local function lane_name(job) return (job.t or '') .. '\31' .. (job.f or '') end
J.lane_name = lane_name

-- Put to the back of its lane (new and due jobs).
function J.append(job)
  local tenant = job.t or ''
  local lanes = key('lanes', job.q, job.b)
  if call('RPUSH', key('ready', job.q, job.b, lane_name(job)), job.id) == 1 then
    if call('RPUSH', key('lanes', job.q, job.b, tenant), job.f or '') == 1 then
      call('RPUSH', lanes, tenant)
    end
  end
  J.wake(job.q)
end

-- Put to the front of its band, in the order of first arrival (returned jobs).
function J.to_front(job)
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
  call('ZADD', key('delayed', job.q), int(now + ms), job.id)
end

function J.drop_lease(job)
  J.clock_busy(job.q)
  call('ZREM', key('leases', job.q), job.id)
end

-- End a job for good, writing `fields` with it. `listed`: its entry in a ready list stays until a
-- claim meets it.
function J.finish(job, state, why, fields, listed)
  fields = fields or {}
  fields.E = int(now)
  if why ~= '' then fields.m = string.sub(why, 1, 64) end
  if listed then fields.g = '1' end
  J.move(job, state, fields)
  J.bump(job.q, 'bytes', -(tonumber(job.l) or 0))
  if job.D then call('ZREM', P .. 'deadlines', job.id) end
  call('ZADD', key('end', job.q, ENDED[state]), int(now), job.id)
end

-- The digest of an idempotency key outlives its job.
function J.leave_tombstone(job, keep_ms)
  if job.h and keep_ms > 0 then
    call('SET', P .. 'i:' .. job.id, job.h .. ' ' .. ENDED[job.s], 'PX', int(keep_ms))
  end
end

function J.forget(job)
  call('UNLINK', P .. 'j:' .. job.id, P .. 'd:' .. job.id, P .. 't:' .. job.id)
end

-- A lane's head was taken out: drop what became empty, else give the next lane its turn.
function J.rotate(q, band, tenant, feature)
  local lanes = key('lanes', q, band)
  local features = key('lanes', q, band, tenant)
  if call('EXISTS', key('ready', q, band, tenant .. '\31' .. feature)) == 1 then
    call('LMOVE', features, features, 'LEFT', 'RIGHT')
  else
    call('LPOP', features)
  end
  if call('EXISTS', features) == 1 then
    call('LMOVE', lanes, lanes, 'LEFT', 'RIGHT')
  else
    call('LPOP', lanes)
  end
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

-- Charges of a claim, as kept with the lease.
function J.charged(job)
  if not job.y then return nil end
  local at, input, output, tokens = string.match(job.y, '^(%d+) (%d+) (%d+) (%d+)$')
  return tonumber(at), {requests = 1, input_tokens = tonumber(input),
    output_tokens = tonumber(output), tokens = tonumber(tokens)}
end

-- Give a claim's whole charge back: nothing was sent.
function J.refund(job)
  local at, amounts = J.charged(job)
  if not at then return end
  for unit, amount in pairs(amounts) do
    J.bump(job.q, 'ch:' .. unit, -amount)
    amounts[unit] = -amount
  end
  J.bump(job.q, 'grants', -1)
  W.correct(at, amounts)
end

-- Give an unsent job back to the front at no cost.
function J.release(job, fields)
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
  return call('ZREM', key('front', job.q, job.b), job.id) == 0
end
