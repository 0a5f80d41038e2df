-- Failure jobs: a queue with handlers hears of each of its jobs that died or went to review.
--
-- A failure job is made in the script that moves the other one: exactly once. Its id is
-- `<job id>.f<n>`, its payload the event. It makes no call: it is charged nothing and waits in
-- free:<queue> (ZSET by time) instead of a lane. `st` counts them: free waiting, held_failures leased.

local function event_of(job, id, state)
  local last = call('LINDEX', P .. 't:' .. job.id, -1)
  local record, why = last and decode(last) or {}, job.m or ''
  local class, message = record['class'] or '', record.message or why
  -- The last record is of the run that ended it, unless its end has a reason of its own.
  if why ~= '' and not string.find(string.lower(why), string.lower(class), 1, true) then
    class, message = '', why
  end
  return encode({event_id = id, job_id = job.id, queue = job.q, handler = job.H or '',
    tenant = job.t or '', feature = job.f or '', state = state == 'V' and 'review' or 'dead',
    outcome = class, message = message, attempts = tonumber(job.a) or 0})
end

function J.list_failure(job)
  call('ZADD', key('free', job.q), int(now), job.id)
  J.bump(job.q, 'free', 1)
  J.wake(job.q)
end

-- False, as J.unlist says: nothing of it stays in a list.
function J.unlist_failure(job)
  J.bump(job.q, 'free', -call('ZREM', key('free', job.q), job.id))
  return false
end

function J.report_failure(job, state)
  if job.H == FAILURE or not (queue_cfg(job.q) and queue_cfg(job.q).handlers) then return end
  local count = int((tonumber(job.F) or 0) + 1)
  local id = job.id .. '.f' .. count
  local event = event_of(job, id, state)
  job.F = count
  call('HSET', P .. 'j:' .. job.id, 'F', count)
  call('SET', P .. 'd:' .. id, event)
  local fields = {q = job.q, s = 'R', b = job.b, p = job.p, c = now, n = 0, l = #event, i = 0, o = 0,
    u = 0, H = FAILURE}
  local args = {}
  if (job.t or '') ~= '' then fields.t = job.t end
  if (job.f or '') ~= '' then fields.f = job.f end
  for name, value in pairs(fields) do args[#args + 1], args[#args + 2] = name, value end
  call('HSET', P .. 'j:' .. id, unpack(args))
  J.bump(job.q, 'R', 1)
  J.bump(job.q, 'reported', 1)
  J.bump(job.q, 'bytes', #event)
  J.list_failure({q = job.q, id = id})
end

-- Up to `most` that are ready, oldest first.
function J.failure_jobs(q, most)
  local jobs = {}
  if most <= 0 or J.count(q, 'free') == 0 then return jobs end
  for _, id in ipairs(call('ZRANGE', key('free', q), 0, most - 1)) do jobs[#jobs + 1] = J.load(id) end
  return jobs
end

-- The event, and in a line of its own the payload of the job that failed, where it is still there.
function J.failure_payload(failure)
  local event = call('GET', P .. 'd:' .. failure.id) or '{}'
  local id = string.match(failure.id, '^(.*)%.f%d+$')
  local ended_well = call('HGET', P .. 'j:' .. id, 's') == 'F'
  return event .. '\n' .. (not ended_well and call('GET', P .. 'd:' .. id) or '')
end
