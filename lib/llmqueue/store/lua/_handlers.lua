-- Jobs that run their owner's code: the call that is open, and the journal of those that are finished.
--
-- c:<id> LIST: names of finished calls; c:<id>:<name> STRING: the answer of one, replayed when the job
--   runs again. A name is the digest of a request and which of the identical ones it was.

-- Number of the call that is open; a payload's only one is the first.
function J.open_call(job) return tonumber(string.match(job.O or '1', '^%d+')) end

-- The open call's outcome is not known: when it is made again, it may be a duplicate.
function J.doubt_open_call(job, fields)
  local name = string.match(job.O or '', ' (.+)$')
  if name then fields.Q = job.Q and job.Q .. ' ' .. name or name end
end

-- May the open call have been paid before?
function J.open_call_in_doubt(job)
  if not job.H then return job.d == '1' end
  local name = string.match(job.O or '', ' (.+)$')
  return name ~= nil and string.find(' ' .. (job.Q or '') .. ' ', ' ' .. name .. ' ', 1, true) ~= nil
end

-- ---------------------------------------------------------------- calls that finish while a job runs

local function memory_of(fence) return P .. 'a:' .. fence .. ':n' end

-- Was this call of this run recorded before?
function J.call_was_finished(job, fence, number)
  local last_fence, last = string.match(job and job.N or '', '^(%S+) (%d+)$')
  if last_fence == fence and tonumber(last) >= number then return true end
  if job and job.x == fence then return false end
  return (tonumber(call('GET', memory_of(fence)) or nil) or 0) >= number
end

-- What to write into the job's hash once a call of its present run is recorded. A run that was cut off
-- may still repeat what it said: its number moves to a key of its own.
function J.remember_call(job, fence, number)
  local last_fence, last = string.match(job.N or '', '^(%S+) (%d+)$')
  if last_fence and last_fence ~= fence then
    call('SET', memory_of(last_fence), last, 'NX', 'PX', C.outcome_memory_ms)
  end
  return fence .. ' ' .. int(number)
end

function J.remember_late_call(fence, number)
  call('SET', memory_of(fence), int(number), 'PX', C and C.outcome_memory_ms or 86400000)
end

-- Keep a call's answer; the first one that came is the one that counts. `waiting`: key of an answer
-- that was written before, else `answer` has it.
function J.keep_answer(id, name, answer, waiting)
  local kept = P .. 'c:' .. id .. ':' .. name
  if call('EXISTS', kept) == 1 then return end
  if answer ~= '\1' then
    call('SET', kept, answer)
  else
    call('RENAME', waiting, kept)
    call('PERSIST', kept)
  end
  call('RPUSH', P .. 'c:' .. id, name)
end

function J.drop_journal(job)
  local list = P .. 'c:' .. job.id
  local names = {list}
  if job.J then
    for _, name in ipairs(call('LRANGE', list, 0, -1)) do names[#names + 1] = list .. ':' .. name end
  end
  call('UNLINK', unpack(names))
end
