-- What every claim, heartbeat and snapshot does first: expired leases, due jobs, deadlines,
-- retention. At most H.left units of work a call; `again` says that more is waiting.

local H = {}
each_call(function() H.left, H.again, H.ran = 16, false, false end)
local LEASE_UNITS = 2

-- Ledger entry for a run whose worker never reported: worst case, estimated.
function H.book_lost(job)
  local worst = tonumber(job.u)
  call('XADD', P .. 'ledger', '*', 'f', job.x, 'k', 'lost', 'e', encode({
    job = job.id, fence = job.x, tenant = job.t or '', feature = job.f or '', model = job.v or '',
    started = tonumber(job.e) / 1000, finished = now / 1000, input_tokens = tonumber(job.i),
    output_tokens = tonumber(job.o), nano_usd = worst or cjson.null, estimated = true,
    ['class'] = 'UNKNOWN', possible_duplicate = job.d == '1', call = J.open_call(job)}))
  M.lost(job.q, job.x, {job.v or '', -1, worst or -1, tonumber(job.i), tonumber(job.o)},
    C.outcome_memory_ms)
  if J.open_call_in_doubt(job) then M.count(job.q, 'doubles') end
end

-- A sent call's outcome is not known: repeat it once where that is cheap, else a person decides.
-- `delay_ms` nil: back to the front at once.
function H.unknown(job, fields, delay_ms)
  local policy = queue_cfg(job.q).unknown
  if job.H then J.doubt_open_call(job, fields) end
  local worst, repeats = tonumber(job.u), tonumber(job.A) or 0
  local left = not job.M or (tonumber(fields.a or job.a) or 0) < tonumber(job.M)
  local cheap = policy.policy == 'Retry'
    or (policy.policy == 'Review' and worst and worst < policy.below_nano_usd)
  if cheap and left and repeats < policy.max_retries then
    fields.A, fields.d, fields.X = int(repeats + 1), '1', job.x
    fields.x, fields.w, fields.y = '', '', ''
    if delay_ms then J.delay(job, delay_ms, fields) else J.ready_again(job, fields) end
  elseif policy.policy == 'Review' then
    J.move(job, 'V', fields)
    call('ZADD', key('review', job.q), int(now), job.id)
  else
    fields.x = ''
    J.finish(job, 'X', 'outcome unknown', fields)
  end
end

-- A lease ran out: its worker died, or never heard of it.
function H.reclaim(id, score)
  local job = J.load(id)
  if not job then return end
  J.drop_lease(job)
  local crashes = int((tonumber(job.k) or 0) + 1)
  if job.s == 'S' then
    if J.remember_lost(job.x) then H.book_lost(job) end
    J.bump(job.q, 'reclaims', 1)
    T.count(1, 1, 0, 1)
    T.judge(true)
    if R.v.brp == id .. ' ' .. job.x then T.probed(false) end
    local used = (R.v.brk or 'c') == 'c' and 1 or 0
    call('RPUSH', P .. 't:' .. id, encode({fence = job.x, ['class'] = 'UNKNOWN', estimated = true,
      started = tonumber(job.e) / 1000, finished = now / 1000, nano_usd = tonumber(job.u) or cjson.null,
      call = J.open_call(job), message = 'the worker disappeared after sending the request'}))
    local fields = {k = crashes, r = int((tonumber(job.r) or 0) + 1),
      a = int((tonumber(job.a) or 0) + used)}
    if job.z then
      fields.x = ''
      J.finish(job, 'C', 'cancelled while running', fields)
    else
      H.unknown(job, fields)
      if job.s == 'R' or job.s == 'D' then M.count(job.q, 'r:UNKNOWN') end
    end
    return
  end
  J.gave_back(job)
  J.refund(job)
  local beat = tonumber(call('HGET', P .. 'w:' .. (job.w or ''), 't'))
  local lost_reply = beat and beat > score - C.lease_ms
  local fields = {x = '', w = '', y = ''}
  if not lost_reply then
    fields.k = crashes
    J.bump(job.q, 'reclaims', 1)
  end
  if not lost_reply and tonumber(crashes) >= C.max_crashes then
    J.finish(job, 'X', 'its worker process died ' .. crashes .. ' times', fields)
  else
    J.ready_again(job, fields)
  end
end

local function due(name, limit_score, handle, units)
  if H.left <= 0 then H.again = true; return end
  local most = ceil(H.left / (units or 1))
  local got = call('ZRANGEBYSCORE', name, '-inf', limit_score, 'WITHSCORES', 'LIMIT', 0, most)
  for i = 1, #got, 2 do handle(got[i], tonumber(got[i + 1])) end
  H.left = H.left - #got / 2 * (units or 1)
  if H.left <= 0 then H.again = true end
end

function H.deadline(id)
  call('ZREM', P .. 'deadlines', id)
  local job = J.load(id)
  if not job or ENDED[job.s] then return end
  if job.s == 'R' or job.s == 'D' then
    J.finish(job, 'E', 'deadline passed', nil, J.unlist(job))
  elseif job.s == 'L' then
    J.drop_lease(job)
    J.refund(job)
    J.finish(job, 'E', 'deadline passed', {x = ''})
  else
    call('HSET', P .. 'j:' .. id, 'Z', '1')
  end
end

-- However short the retention: a producer that heard no answer may still repeat its enqueue, and what
-- has been forgotten would run again. And a batch that goes on keeps its jobs.
local REPEAT_MS, BATCH_MS = 120000, 3600000
function H.kept_until(job)
  if job.bi and Batches.unfinished(job.bi) then return now + BATCH_MS end
  return job.c + REPEAT_MS
end

-- Too many are dropped only an hour after their end.
local COUNTED_MS = 3600000
function H.retire(q, state, keep_ms, most, idempotency_ms)
  local name = key('end', q, state)
  local function drop(id, older_ms)
    local job = J.load(id)
    local kept_until = job and H.kept_until(job) or 0
    if kept_until > now then
      call('ZADD', name, int(kept_until - older_ms), id)
      return
    end
    call('ZREM', name, id)
    if not job then return end
    J.bump(q, job.s, -1)
    J.leave_tombstone(job, idempotency_ms - keep_ms)
    if job.g then
      call('HSET', P .. 'j:' .. id, 'g', '2')
      call('UNLINK', P .. 'd:' .. id, P .. 't:' .. id, P .. 'p:' .. id)
      if job.H then J.drop_journal(job) end
    else
      J.forget(job)
    end
  end
  due(name, now - keep_ms, function(id) drop(id, keep_ms) end)
  if most and H.left > 0 then
    local over = call('ZCARD', name) - most
    if over > 0 then
      local ids = call('ZRANGEBYSCORE', name, '-inf', int(now - COUNTED_MS), 'LIMIT', 0, min(over, H.left))
      for _, id in ipairs(ids) do drop(id, COUNTED_MS) end
      H.left = H.left - #ids
    end
  end
end

-- By kind, the urgent first and each for all queues: what one of them has to forget must not keep
-- another's jobs from being ready.
local KINDS = {
  function(q)
    if now >= R.num('hold') then due(key('leases', q), now, H.reclaim, LEASE_UNITS) end
  end,
  function(q)
    due(key('parked', q), now, function(member) Lanes.unpark(q, member) end)
  end,
  function(q)
    due(key('delayed', q), now, function(id)
      call('ZREM', key('delayed', q), id)
      local job = J.load(id)
      if not job or job.s ~= 'D' then return end
      J.move(job, 'R')
      if tonumber(job.k or 0) > 0 then J.to_front(job) else J.append(job) end
    end)
  end,
  function(q, cfg)
    local keep = cfg.retention
    H.retire(q, 'succeeded', keep.succeeded_ms, keep.max_succeeded, cfg.idempotency_ms)
    H.retire(q, 'dead', keep.failed_ms, keep.max_failed, cfg.idempotency_ms)
    H.retire(q, 'cancelled', keep.failed_ms, keep.max_failed, cfg.idempotency_ms)
    H.retire(q, 'expired', keep.failed_ms, keep.max_failed, cfg.idempotency_ms)
  end,
}

-- Whose turn is first changes from call to call.
local function each_queue(handle)
  local count = #C.queues
  for i = 1, count do
    local q = C.queues[(floor(now) + i) % count + 1]
    local cfg = queue_cfg(q)
    if cfg then handle(q, cfg) end
  end
end

-- Not more often than every 50 ms: what is due a moment later is met by the next call.
function H.run_sometimes()
  if now - R.num('hr') >= 50 then H.run() end
end

function H.run()
  due(P .. 'deadlines', active_now(), H.deadline)
  for _, handle in ipairs(KINDS) do each_queue(handle) end
  R.set('hr', H.again and 0 or now)
  H.ran = true
  if now - R.num('hk') > 10000 then
    R.set('hk', now)
    call('XTRIM', P .. 'ledger', 'MINID', '~', int(now - R.num('off') - C.ledger_ms))
    for _, w in ipairs(call('ZRANGEBYSCORE', P .. 'workers', '-inf', int(now - 60000))) do
      call('DEL', P .. 'w:' .. w)
    end
    call('ZREMRANGEBYSCORE', P .. 'workers', '-inf', int(now - 60000))
  end
end
