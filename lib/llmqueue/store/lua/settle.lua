-- Record what finished runs came to: job state, charges, budget and credential, ledger.
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV 1 queue, then triples: item JSON, result (bytes; '\1' = waits in r:<fence>), attempt record JSON
--   item: i id, x fence, c class, s sent, ra asked wait ms, rs derived wait ms, rc its cap ms,
--   pu pause ms, ni/no actual input/output tokens, ca credential, j jitter 0..1,
--   l its ledger entry as _meters.lua counts it, m message, q severity where not ERROR, h limits in the headers {{unit, window ms or 0, limit}, ...}, own: of the
--   handler's code, not of a call
-- Returns for each {verdict, state letter}.
-- Complexity: O(jobs x limits).

local BACK = {RATE = true, RAMP = true, QUOTA = true, AUTH = true}
local SCHEDULES = {OVERLOAD = {'overload', 'no'}, TRANSIENT = {'transient', 'nt'},
  MALFORMED = {'malformed', 'nm'}}

local item, result, record  -- of the run being settled
local queue = C and queue_cfg(ARGV[1]) and ARGV[1] or nil

-- ---------------------------------------------------------------- the job's next state

local function delay_of(job, name, done)
  local cfg = queue_cfg(job.q).retry
  local schedule = cfg[name]
  local delays = schedule.delays_ms
  if job.B then delays = decode(job.B) end
  local wait = delays[min(done + 1, #delays)] or 0
  if item.ra then wait = max(wait, item.ra) end
  return wait * (1 + item.j * cfg.jitter_percent / 100)
end

local function retry_or_die(job, fields, used)
  local name, counter = unpack(SCHEDULES[item.c])
  local schedule = queue_cfg(job.q).retry[name]
  local done = tonumber(job[counter]) or 0
  local attempts = tonumber(fields.a or job.a) or 0
  local wait = delay_of(job, name, done)
  if used then
    local most = schedule.max_attempts or #(job.B and decode(job.B) or schedule.delays_ms) + 1
    if done + 1 >= most or (job.M and attempts >= tonumber(job.M)) then
      return J.finish(job, 'X', 'no attempts left after ' .. item.c, fields)
    end
    fields[counter] = int(done + 1)
  end
  fields.x, fields.w, fields.y = '', '', ''
  J.delay(job, wait, fields)
end

local function next_state(job, from, was_probe)
  local class = item.c
  local fields = {r = (job.r or 0) + 1}
  -- Failures that opened the breaker, its probes, and all that says "not now" use no attempt.
  local provider_failed = O.FAILED[class] and not item.own
  local used = not BACK[class] and not (provider_failed and (was_probe or (R.v.brk or 'c') ~= 'c'))
  if used then fields.a = (job.a or 0) + 1 end
  if class == 'SUCCESS' then
    if result == '\1' then
      if call('EXISTS', P .. 'r:' .. item.x) == 1 then
        call('RENAME', P .. 'r:' .. item.x, P .. 'd:' .. job.id)
        call('PERSIST', P .. 'd:' .. job.id)
      end
    else
      call('SET', P .. 'd:' .. job.id, result)
    end
    if from == 'list' then fields.x, fields.X = item.x, '' end
    return J.finish(job, 'F', '', fields, job.listed)
  end
  if class == 'CANCELLED' or job.z then
    return J.finish(job, 'C', 'cancelled while running', fields)
  end
  if BACK[class] then
    fields.x, fields.w, fields.y = '', '', ''
    return J.ready_again(job, fields)
  end
  if class == 'UNKNOWN' then
    local retry = queue_cfg(job.q).retry.transient
    return H.unknown(job, fields, (retry.delays_ms[1] or 0) * (1 + item.j * 0.3))
  end
  if SCHEDULES[class] then return retry_or_die(job, fields, used) end
  J.finish(job, 'X', class, fields)
end

-- ---------------------------------------------------------------- one run

-- Leave the place where the job waits now; returns 'held', 'list' or nil (fenced).
local function take(job)
  if job.x == item.x and job.x ~= '' then
    if job.s == 'L' or job.s == 'S' then
      J.drop_lease(job)
      return 'held'
    elseif job.s == 'V' then
      call('ZREM', key('review', job.q), job.id)
      return 'held'
    end
  elseif job.X == item.x and job.X ~= '' and item.c == 'SUCCESS' then
    -- The first run answered after all, while its repeat is not sent yet: it wins.
    if job.s == 'R' or job.s == 'D' then
      job.listed = J.unlist(job)
      return 'list'
    elseif job.s == 'L' then
      J.drop_lease(job)
      J.refund(job)
      job.y = nil
      return 'list'
    end
  end
end

-- The state that an earlier settlement of this fence left the job in, LOST, or nil.
local function outcome_before(job)
  if job and job.x == item.x then
    if ENDED[job.s] then return job.s end
    if job.s ~= 'V' and not job.k then return nil end
  end
  return call('GET', P .. 'a:' .. item.x) or nil
end

-- Some wait for the end of a call, not for a job: of all queues that share the calls in flight.
local function wake_for_a_free_place(job)
  if C.max_in_flight then
    for _, q in ipairs(C.queues) do
      if J.count(q, 'R') > 0 then J.wake(q) end
    end
  elseif queue_cfg(job.q).bands then
    J.wake(job.q)
  end
end

local function settle()
  local job = J.load(item.i)
  local before = outcome_before(job)
  if before and before ~= LOST then return {'repeated', before} end
  -- Written by a command of its own, perhaps to a server that is no primary any more.
  if result == '\1' and call('EXISTS', P .. 'r:' .. item.x) == 0 then return {'again', ''} end
  local from = job and C and queue_cfg(job.q) and take(job)
  O.book(item, job and job.q or queue, job, before and 'correction' or from and 'call' or 'extra', record)
  if not from then
    local state = job and job.s or ''
    J.remember_outcome(item.x, state)
    local q = job and job.q or queue
    if q then J.bump(q, 'fenced', 1) end
    -- Another run of it is paid for in the open.
    if job and item.s and not ENDED[job.s] then call('HSET', P .. 'j:' .. job.id, 'd', '1') end
    return {'fenced', state}
  end
  O.add_record(job, record)
  local id_fence = item.i .. ' ' .. item.x
  local was_probe = R.v.brp == id_fence
  if from ~= 'list' then O.correct(item, job) end
  O.learn(item, job)
  O.credential_effect(item, job, id_fence)
  O.budget_effect(item, job, id_fence)
  if item.c == 'RATE' or item.c == 'RAMP' or item.c == 'OVERLOAD' then
    local at = J.charged(job)
    if at and item.s then
      -- A refusal says nothing of how long calls take: its time and its grant do not count.
      J.bump(job.q, 'busy', -max(0, now - at))
      J.bump(job.q, 'grants', -1)
      J.bump(job.q, 'ch:requests', -1)
    end
  end
  job.severity = item.q
  next_state(job, from, was_probe)
  if job.s == 'R' or job.s == 'D' then M.count(job.q, 'r:' .. item.c) end
  J.bump(job.q, 'settled', 1)
  J.note(job.q, 'settle_at', now)
  if job.x ~= item.x or not ENDED[job.s] then J.remember_outcome(item.x, job.s) end
  wake_for_a_free_place(job)
  return {'settled', job.s}
end

local answers = {}
for i = 2, #ARGV, 3 do
  item, result, record = decode(ARGV[i]), ARGV[i + 1], ARGV[i + 2]
  answers[#answers + 1] = settle()
end
O.write_lessons()
finish_script()
return answers
