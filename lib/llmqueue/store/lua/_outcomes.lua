-- What an answered call changes: windows, credential, budget, and what is learned of its queue.
--
-- `item` is one finished call as settle.lua has it, `job` the hash of its job with the charge open.
-- Of the code of a handler (item.own) nothing here learns anything.

local O = {}

-- By class: failures of the provider, and answers that were billed.
O.FAILED = {RATE = true, RAMP = true, OVERLOAD = true, TRANSIENT = true, UNKNOWN = true}
local ANSWERED = {SUCCESS = true, QUOTA = true, AUTH = true, FORBIDDEN = true, MALFORMED = true,
  PERMANENT = true, RATE = true, RAMP = true, OVERLOAD = true, TRANSIENT = true, UNKNOWN = true}
local PRODUCED = {SUCCESS = true, MALFORMED = true}
local MOST_RECORDS = 50

-- Book a call of queue `q` (nil: nobody knows it any more); `record` is both its ledger entry and what
-- readers of the job see. `kind`: call, extra (its run had lost the job), or correction of what was
-- booked when its worker was lost.
function O.book(item, q, job, kind, record)
  if not item.l then return end
  call('XADD', P .. 'ledger', '*', 'f', item.x, 'k', kind, 'e', record)
  if not q then return end
  if kind == 'correction' then M.found(q, item.x) end
  M.called(q, item.c, item.l)
  local twice = job and (kind == 'call' and J.open_call_in_doubt(job) or kind == 'extra' and job.s == 'F')
  if twice and M.billed(item.l) then M.count(q, 'doubles') end
end

-- What a dropped record cost is still part of what the job did ('?': its price is not known).
local function drop_oldest(job, name)
  local cost = decode(call('LPOP', name)).nano_usd
  if cost == nil or job.Y == '?' then return end
  job.Y = cost == cjson.null and '?' or int((tonumber(job.Y) or 0) + cost)
  call('HSET', P .. 'j:' .. job.id, 'Y', job.Y)
end

function O.add_record(job, record)
  local name = P .. 't:' .. job.id
  if call('RPUSH', name, record) > MOST_RECORDS then drop_oldest(job, name) end
end

-- What was learned of each queue in this batch, written once.
local lessons
each_call(function() lessons = {} end)

function O.learn(item, job)
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

function O.write_lessons()
  for q, known in pairs(lessons) do
    J.note(q, 'inr', int(known.ratio))
    J.note(q, 'outq', int(known.quantile))
    J.note(q, 'outn', known.n)
  end
end

-- Correct what the claim charged by what the provider counts for this outcome.
function O.correct(item, job)
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

function O.credential_effect(item, job, id_fence)
  if item.own then return end
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

-- What a refused call goes on to be charged, see O.correct().
local function what_stays(amounts)
  if C.token_accounting == 'keep' then return amounts end
  return {requests = amounts.requests, input_tokens = 0, output_tokens = 0, tokens = 0}
end

function O.budget_effect(item, job, id_fence)
  local class = item.c
  if not item.s or not ANSWERED[class] then
    if R.v.brp == id_fence then R.set('brp', '') end
    return
  end
  local failed = O.FAILED[class] or false
  local rate = class == 'RATE' or class == 'RAMP'
  T.count(1, failed and 1 or 0, rate and 1 or 0, class == 'UNKNOWN' and 1 or 0)
  if R.v.brp == id_fence then T.probed(not failed) else T.judge(failed) end
  local sent_at = tonumber(job.e) or 0
  if item.h then L.hear(item.h, sent_at) end
  if rate then
    local at, amounts = J.charged(job)
    if at then W.refuse(at, what_stays(amounts)) end
    T.block(queue_cfg(job.q).retry.rate, item.ra, item.rs, item.rc, sent_at,
      class == 'RATE' and amounts or nil)
    if class == 'RAMP' then R.set('slow', R.num('blk')) end
  elseif class == 'SUCCESS' then
    R.set('stk', 0)
  end
  if rate or R.num('half') > 0 then T.storm() end
end
