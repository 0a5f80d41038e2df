-- Record what finished runs came to: job state, charges, budget and credential, ledger.
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV triples: item JSON, result (bytes; '\1' = waits in r:<fence>), attempt record JSON
--   item: i id, x fence, c class, s sent, ra asked wait ms, rs derived wait ms, rc its cap ms,
--   pu pause ms, ni/no actual input/output tokens, ca credential, j jitter 0..1, l ledger entry?
--   m message, q severity
-- Returns for each {verdict, state letter}.
-- Complexity: O(jobs x limits).

local BACK = {RATE = true, RAMP = true, QUOTA = true, AUTH = true}
local FAILED = {RATE = true, RAMP = true, OVERLOAD = true, TRANSIENT = true, UNKNOWN = true}
local ANSWERED = {SUCCESS = true, QUOTA = true, AUTH = true, FORBIDDEN = true, MALFORMED = true,
  PERMANENT = true, RATE = true, RAMP = true, OVERLOAD = true, TRANSIENT = true, UNKNOWN = true}
local SCHEDULES = {OVERLOAD = {'overload', 'no'}, TRANSIENT = {'transient', 'nt'},
  MALFORMED = {'malformed', 'nm'}}
local PRODUCED = {SUCCESS = true, MALFORMED = true}

local item, result, record  -- of the run being settled

local function log_entry(kind)
  if item.l then call('XADD', P .. 'ledger', '*', 'f', item.x, 'k', kind, 'e', record) end
end

-- What was learned of each queue in this batch, written once.
local lessons = {}

local function learn(job)
  if item.c ~= 'SUCCESS' or not item.ni or item.est then return end
  local known = lessons[job.q]
  if not known then
    known = {ratio = tonumber(J.stat(job.q, 'inr')) or 1000, quantile = J.count(job.q, 'outq'),
      n = J.count(job.q, 'outn')}
    lessons[job.q] = known
  end
  local guess = tonumber(job.i)
  if guess > 0 then
    known.ratio = max(250, min(4000, known.ratio + 0.05 * (1000 * item.ni / guess - known.ratio)))
  end
  if C.learned_output and item.no then
    -- A running 0.98 quantile: a step up when exceeded, a fiftieth of it down otherwise.
    local step = max(16, known.quantile * 0.1)
    if known.n < 20 then
      known.quantile = max(known.quantile, item.no)
    elseif item.no > known.quantile then
      known.quantile = max(known.quantile + step, item.no)
    else
      known.quantile = known.quantile - step * 0.02
    end
    known.n = known.n + 1
  end
end

local function write_lessons()
  for q, known in pairs(lessons) do
    J.note(q, 'inr', int(known.ratio))
    J.note(q, 'outq', int(known.quantile))
    J.note(q, 'outn', known.n)
  end
end

-- Correct what the claim charged by what the provider counts for this outcome.
local function correct(job)
  if not item.s then return J.refund(job) end
  local at, amounts = J.charged(job)
  if not at or C.token_accounting == 'keep' then return end
  if item.c == 'UNKNOWN' or item.c == 'CANCELLED' then return end
  local input, output = 0, 0
  if (PRODUCED[item.c] or item.part) and item.ni then input, output = item.ni, item.no or 0
  elseif PRODUCED[item.c] then input, output = amounts.input_tokens, amounts.output_tokens end
  local tokens = C.token_rule == 'sum' and input + output or max(input, output)
  W.correct(at, {input_tokens = input - amounts.input_tokens,
    output_tokens = output - amounts.output_tokens, tokens = tokens - amounts.tokens})
end

-- ---------------------------------------------------------------- budget and credential

local function credential_effect(job, id_fence)
  local class, credential = item.c, item.ca
  local pause = T.pause_of(credential)
  local probe = pause and pause.p == id_fence
  if class == 'QUOTA' or class == 'AUTH' then
    local next_ms = item.pu or item.ra or C.breaker.probe_ms
    if not (pause and not probe and pause.n > now) then T.pause(credential, job.q, class, item.m, next_ms) end
  elseif class == 'FORBIDDEN' then
    local name = key('forbidden', credential)
    R.set('forbidden', '1')
    call('SADD', name, job.id)
    call('PEXPIRE', name, 3600000)
    if probe or call('SCARD', name) >= 3 then
      T.pause(credential, job.q, class, item.m, C.breaker.probe_ms)
    end
  elseif probe then
    if class == 'UNKNOWN' or class == 'TRANSIENT' or class == 'CANCELLED' then
      pause.p, pause.n = '', now + C.breaker.probe_ms
      T.save_pause(credential, pause)
    else
      T.unpause(credential)
    end
  elseif class == 'SUCCESS' then
    if R.v.forbidden == '1' then
      call('DEL', key('forbidden', credential))
      R.set('forbidden', '0')
    end
    if not pause then T.forget_unused_keys() end
  end
end

local function budget_effect(job, id_fence)
  local class = item.c
  if not item.s or not ANSWERED[class] then
    if R.v.brp == id_fence then R.set('brp', '') end
    return
  end
  local failed = FAILED[class] or false
  local rate = class == 'RATE' or class == 'RAMP'
  T.count(1, failed and 1 or 0, rate and 1 or 0, class == 'UNKNOWN' and 1 or 0)
  if R.v.brp == id_fence then T.probed(not failed) else T.judge(failed) end
  if rate then
    T.block(queue_cfg(job.q).retry.rate, item.ra, item.rs, item.rc, tonumber(job.e) or 0)
    if class == 'RAMP' then R.set('slow', R.num('blk')) end
  elseif class == 'SUCCESS' then
    R.set('stk', 0)
  end
  if rate or R.num('half') > 0 then T.storm() end
end

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
  local used = not BACK[class] and not (FAILED[class] and (was_probe or (R.v.brk or 'c') ~= 'c'))
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

local function settle()
  local job = J.load(item.i)
  local before = outcome_before(job)
  if before and before ~= LOST then return {'repeated', before} end
  -- Written by a command of its own, perhaps to a server that is no primary any more.
  if result == '\1' and call('EXISTS', P .. 'r:' .. item.x) == 0 then return {'again', ''} end
  local from = job and C and queue_cfg(job.q) and take(job)
  log_entry(before and 'correction' or from and 'call' or 'extra')
  if not from then
    local state = job and job.s or ''
    J.remember_outcome(item.x, state)
    if job then J.bump(job.q, 'fenced', 1) end
    -- Another run of it is paid for in the open.
    if job and item.s and not ENDED[job.s] then call('HSET', P .. 'j:' .. job.id, 'd', '1') end
    return {'fenced', state}
  end
  if call('RPUSH', P .. 't:' .. job.id, record) > 50 then call('LPOP', P .. 't:' .. job.id) end
  local id_fence = item.i .. ' ' .. item.x
  local was_probe = R.v.brp == id_fence
  if from ~= 'list' then correct(job) end
  learn(job)
  credential_effect(job, id_fence)
  budget_effect(job, id_fence)
  if item.c == 'RATE' or item.c == 'RAMP' or item.c == 'OVERLOAD' then
    local at = J.charged(job)
    if at and item.s then
      -- A refusal says nothing of how long calls take: its time and its grant do not count.
      J.bump(job.q, 'busy', -max(0, now - at))
      J.bump(job.q, 'grants', -1)
      J.bump(job.q, 'ch:requests', -1)
    end
  end
  next_state(job, from, was_probe)
  J.bump(job.q, 'settled', 1)
  J.note(job.q, 'settle_at', now)
  if job.x ~= item.x or not ENDED[job.s] then J.remember_outcome(item.x, job.s) end
  if C.max_in_flight then J.wake(job.q) end
  return {'settled', job.s}
end

local answers = {}
for i = 1, #ARGV, 3 do
  item, result, record = decode(ARGV[i]), ARGV[i + 1], ARGV[i + 2]
  answers[#answers + 1] = settle()
end
write_lessons()
finish_script()
return answers
