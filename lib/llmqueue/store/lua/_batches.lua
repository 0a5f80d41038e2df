-- Batches: jobs of one queue that are counted together, and jobs that follow their end.
--
-- b:<batch> HASH: q queue  nm name  c created  al failures allowed ('' = any)  se sealed  z cancelled
--   total, pend, ok, bad: jobs in it, not ended, succeeded, ended otherwise
--   E ended at  cf more failed than allowed
-- bf:<batch> HASH: the jobs that follow: then, catch, fin: JSON {m metadata as enqueue takes it,
--   p payload}; each is taken out when it is stored.
-- bj:<batch> LIST: its job ids in order. A job knows its batch by the field `bi`.
-- batches:<queue> ZSET: batches that have not ended, by creation.
-- What is counted is written by Batches.flush(), once a call.

local known_batches
each_call(function() known_batches = {} end)

function Batches.load(id)
  local batch = known_batches[id]
  if batch == nil then
    local fields, found = read_hash(P .. 'b:' .. id, {})
    batch = found and {id = id, v = fields, dirty = {}} or false
    known_batches[id] = batch
  end
  return batch or nil
end

local function count_in(batch, name) return tonumber(batch.v[name]) or 0 end
local function set_in(batch, name, value) batch.v[name], batch.dirty[name] = value, true end

-- A job that follows: stored whatever the queue's bounds are, since nobody would repeat it.
local function store_follower(batch, name)
  local raw = call('HGET', P .. 'bf:' .. batch.id, name)
  if not raw then return end
  call('HDEL', P .. 'bf:' .. batch.id, name)
  local job = decode(raw)
  local meta, q = decode(job.m), batch.v.q
  meta.payload = job.p
  J.bump(q, 'seq', 1)
  J.bump(q, 'bytes', #job.p)
  J.write_new(q, meta, J.count(q, 'seq'))
  if not meta.dl then
    meta.f.id = meta.i
    J.append(meta.f)
  end
  call('PUBLISH', 'llmqueue:wake', q)
end

local function within_allowed(batch)
  return batch.v.al == '' or count_in(batch, 'bad') <= tonumber(batch.v.al)
end

function Batches.verdict(batch) return within_allowed(batch) and 'F' or 'X' end

-- What its counters say of it now: the jobs that follow, its end.
local function judge_batch(batch)
  if not batch.v.cf and not within_allowed(batch) then
    set_in(batch, 'cf', '1')
    store_follower(batch, 'catch')
  end
  if batch.v.E or not batch.v.se or count_in(batch, 'pend') > 0 then return end
  set_in(batch, 'E', now)
  local verdict = Batches.verdict(batch)
  if verdict == 'F' then store_follower(batch, 'then') end
  store_follower(batch, 'fin')
  call('ZREM', key('batches', batch.v.q), batch.id)
  Events.batch_ended(batch.id, verdict)
end

-- The one place that counts ends: called by J.finish.
function Batches.job_ended(job)
  local batch = Batches.load(job.bi)
  if not batch then return end
  set_in(batch, 'pend', count_in(batch, 'pend') - 1)
  local name = job.s == 'F' and 'ok' or 'bad'
  set_in(batch, name, count_in(batch, name) + 1)
  judge_batch(batch)
end

-- New jobs of a batch, in order.
function Batches.add(id, ids)
  local batch = Batches.load(id)
  set_in(batch, 'total', count_in(batch, 'total') + #ids)
  set_in(batch, 'pend', count_in(batch, 'pend') + #ids)
  call('RPUSH', P .. 'bj:' .. id, unpack(ids))
end

-- Nothing is added to it any more. False: no such batch.
function Batches.seal(id, cancelled)
  local batch = Batches.load(id)
  if not batch then return false end
  if cancelled and not batch.v.E and not batch.v.z then set_in(batch, 'z', '1') end
  if not batch.v.se then
    set_in(batch, 'se', '1')
    judge_batch(batch)
  end
  return true
end

function Batches.unfinished(id)
  local batch = Batches.load(id)
  return batch ~= nil and not batch.v.E
end

function Batches.flush()
  for id, batch in pairs(known_batches) do
    local args = {}
    for name in pairs(batch and batch.dirty or {}) do
      args[#args + 1], args[#args + 2] = name, batch.v[name]
    end
    if #args > 0 then call('HSET', P .. 'b:' .. id, unpack(args)) end
    if batch and batch.dirty.E then
      -- Its jobs are kept as long as that after their end, and none ended later.
      local keep = queue_cfg(batch.v.q) and queue_cfg(batch.v.q).retention
      local ms = keep and max(keep.succeeded_ms, keep.failed_ms) or 604800000
      for _, name in ipairs({'b:', 'bj:', 'bf:'}) do call('PEXPIRE', P .. name .. id, int(ms)) end
    end
    if batch then batch.dirty = {} end
  end
end
