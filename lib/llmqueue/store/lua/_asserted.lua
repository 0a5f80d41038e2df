-- Leases that a worker holds and this server knows nothing of: a failover lost what came last.
--
-- A lease that ended here left a trace: a:<fence> where it was settled or booked as lost, gb:<fence>
-- where it was given back unsent. The trace came after the lease, so whoever has lost the lease has
-- lost it too, and without one the worker knows better.

local A = {}

-- The holder of a job's present lease has beaten since that was renewed, and did not list it.
local function nobody_holds(job, worker)
  if job.w == worker then return true end
  local expiry = tonumber(call('ZSCORE', key('leases', job.q), job.id))
  local beat = tonumber(call('HGET', P .. 'w:' .. (job.w or ''), 't'))
  return expiry ~= nil and beat ~= nil and beat > expiry - C.lease_ms
end

function A.unknown_here(job, fence, worker)
  if not C or not job or not queue_cfg(job.q) then return false end
  local waits = job.s == 'R' or job.s == 'D'
  local older = (job.s == 'L' or job.s == 'S') and nobody_holds(job, worker)
  return (waits or older) and job.X ~= fence
    and call('EXISTS', P .. 'a:' .. fence, P .. 'gb:' .. fence) == 0
end

-- Books a call that left `sent_ms` ago (-1: not yet) as if it left now: no window is over, and it
-- leaves them late by its age at most. Where it has left one already, what is noted is when it left:
-- that window must not be given what it was not charged.
local function charge(job, sent_ms, input, output)
  local most, at = tonumber(job.o), now
  local amounts = {requests = 1, input_tokens = input, output_tokens = output,
    tokens = C.token_rule == 'sum' and input + most or max(input, most)}
  for _, limit in ipairs(C.limits) do
    local amount, pacer = amounts[limit.unit], 'p:' .. limit.name
    if sent_ms >= limit.seconds * 1000 + 1000 then
      at = now - sent_ms
    elseif W.add(limit, now, amount) and limit.paced then
      R.set(pacer, R.num(pacer) - amount)
    end
  end
  for unit, amount in pairs(amounts) do J.bump_charged(job.q, unit, amount) end
  J.bump(job.q, 'grants', 1)
  -- Like every charge, so that one that comes back unsent returns no more than was paid.
  V.pay(job.q, V.cost(amounts))
  N.pay(job.q, job.t or '', 1)
  return J.charge_note(at, amounts)
end

-- Lease it again under this fence. What the job was charged for an older, unsent lease comes back.
function A.take_back(job, fence, worker, sent_ms, input, output)
  local fields = {x = fence, w = worker}
  if job.s == 'R' or job.s == 'D' then
    if J.unlist(job) then fields.g = '1' end
  elseif job.s == 'L' then
    J.refund(job)
  end
  -- A failure job calls nobody.
  fields.y = job.H == FAILURE and '' or charge(job, sent_ms, input, output)
  local state = 'L'
  if sent_ms >= 0 then state, fields.e, fields.X = 'S', int(now - sent_ms), '' end
  J.move(job, state, fields)
  J.bump(job.q, 'asserted', 1)
  M.count(job.q, 'granted')  -- the failover lost the claim that counted it
end

-- Claimed here, and sent as its worker says: the charge is where the request is.
function A.sent(job, sent_ms)
  local at, amounts = J.charged(job)
  local y
  if at then
    for _, limit in ipairs(C and C.limits or {}) do
      if W.moved(limit, at) then
        W.add(limit, at, -amounts[limit.unit])
        W.add(limit, now, amounts[limit.unit])
        y = J.charge_note(now, amounts)
      end
    end
  end
  J.move(job, 'S', {e = int(now - sent_ms), y = y or job.y, X = ''})
end
