-- Record finished calls of handlers that go on running: usage, ledger, journal.
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV 1 queue, then triples as settle.lua has them; an item has also n the call's number and jn its journal name,
--   and a result of '\1' waits in r:<fence>:<n>
-- Returns for each 1 (its run goes on), 0 (its worker holds the job no longer) or -1 (nothing is
--   recorded: the answer that should wait is not there).
-- Complexity: O(calls x limits).

local item, answer, record  -- of the call being recorded
local queue = C and queue_cfg(ARGV[1]) and ARGV[1] or nil

local function waiting_key() return P .. 'r:' .. item.x .. ':' .. int(item.n) end

local function keep_answer(job)
  if item.c ~= 'SUCCESS' or ENDED[job.s] then return false end
  J.keep_answer(job.id, item.jn, answer, waiting_key())
  return true
end

-- The run lost its job: what it used is booked as an extra, and an answer that is paid is still kept.
local function finish_late(job, was_lost)
  O.book(item, job and job.q or queue, job, was_lost and 'correction' or 'extra', record)
  J.remember_late_call(item.x, item.n)
  if not job then return 0 end
  if keep_answer(job) then call('HSET', P .. 'j:' .. job.id, 'J', '1') end
  J.bump(job.q, 'fenced', 1)
  return 0
end

local function finish_held(job, was_lost)
  O.book(item, job.q, job, was_lost and 'correction' or 'call', record)
  O.add_record(job, record)
  if was_lost then call('DEL', P .. 'a:' .. item.x) end
  if job.s == 'V' then call('ZREM', key('review', job.q), job.id) end
  local id_fence = job.id .. ' ' .. item.x
  O.correct(item, job)
  O.learn(item, job)
  O.credential_effect(item, job, id_fence)
  O.budget_effect(item, job, id_fence)
  local fields = {y = '', N = J.remember_call(job, item.x, item.n)}
  if keep_answer(job) then fields.J = '1' end
  if job.z or job.Z then
    J.drop_lease(job)
    fields.x = ''
    J.finish(job, job.z and 'C' or 'E', job.z and 'cancelled while running' or 'deadline passed', fields)
    return 0
  end
  J.move(job, 'L', fields)
  J.lease(job)
  return 1
end

-- Written by a command of its own, perhaps to a server that is no primary any more.
local function answer_is_missing(job)
  return answer == '\1' and job and item.c == 'SUCCESS' and not ENDED[job.s]
    and call('EXISTS', waiting_key(), P .. 'c:' .. job.id .. ':' .. item.jn) == 0
end

local function finish()
  local job = J.load(item.i)
  local held = job and C and queue_cfg(job.q) and job.x == item.x
    and (job.s == 'L' or job.s == 'S' or job.s == 'V')
  if J.call_was_finished(job, item.x, item.n) then return held and 1 or 0 end
  if answer_is_missing(job) then return -1 end
  local before = (not held or job.s == 'V' or job.k) and call('GET', P .. 'a:' .. item.x)
  if held then return finish_held(job, before == LOST) end
  if before and before ~= LOST then return 0 end
  return finish_late(job, before == LOST)
end

local answers = {}
for i = 2, #ARGV, 3 do
  item, answer, record = decode(ARGV[i]), ARGV[i + 1], ARGV[i + 2]
  answers[#answers + 1] = finish()
end
O.write_lessons()
finish_script()
return answers
