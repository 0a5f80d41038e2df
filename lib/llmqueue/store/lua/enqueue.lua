-- Store jobs of one queue, all or none.
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV 1 queue, then pairs: metadata JSON {i id, b band, f fields of j:, dl delay ms, de deadline ms},
--   payload
-- Returns {'ok', {state, duplicate 1/0}...}, or {'unknown'}, {'full', used, bound, 'jobs'|'bytes'},
--   {'conflict', id}; of jobs for a batch (f.bi) also {'no batch'}, {'sealed'},
--   {'foreign', id, its batch or ''}: the job was enqueued before, outside of the batch.
-- Complexity: O(jobs). Not allowed when out of memory, on purpose: no job is taken that cannot be kept.

local q = ARGV[1]
local cfg = C and queue_cfg(q)
if not cfg or cfg.gone then return {'unknown'} end
local NAMES = {R = 'ready', D = 'delayed', L = 'leased', S = 'sent', V = 'review',
  F = 'succeeded', X = 'dead', C = 'cancelled', E = 'expired'}

local answers, fresh, bytes = {'ok'}, {}, 0
local batch = {}
for i = 2, #ARGV, 2 do
  local meta = decode(ARGV[i])
  local there = call('HMGET', P .. 'j:' .. meta.i, 's', 'h')
  local state, digest = there[1] and NAMES[there[1]], there[2]
  if not state then
    local tombstone = meta.h and call('GET', P .. 'i:' .. meta.i)
    if tombstone then digest, state = string.match(tombstone, '^(%S+) (%S+)$') end
  end
  if not state and batch[meta.i] then digest, state = batch[meta.i], 'ready' end
  local into = meta.f.bi and Batches.load(meta.f.bi)
  if meta.f.bi and not into then return {'no batch'} end
  if state then
    local its = into and not batch[meta.i] and (call('HGET', P .. 'j:' .. meta.i, 'bi') or '')
    if its and its ~= meta.f.bi then return {'foreign', meta.i, its} end
    if meta.h and digest ~= meta.h then return {'conflict', meta.i} end
    answers[#answers + 1] = {state, 1}
  else
    if into and into.v.se then return {'sealed'} end
    batch[meta.i] = meta.h or true
    meta.payload = ARGV[i + 1]
    bytes = bytes + #meta.payload
    fresh[#fresh + 1] = meta
    answers[#answers + 1] = {meta.dl and 'delayed' or 'ready', 0}
  end
end

local kept = J.held(q) + J.count(q, 'R') + J.count(q, 'D') + J.count(q, 'V')
if #fresh > 0 and kept + #fresh > cfg.max_jobs then return {'full', kept, cfg.max_jobs, 'jobs'} end
if cfg.max_bytes and bytes > 0 and J.count(q, 'bytes') + bytes > cfg.max_bytes then
  return {'full', J.count(q, 'bytes'), cfg.max_bytes, 'bytes'}
end

-- Writes from here on. Jobs of one lane go to its list in one step.
local lanes, order, joins = {}, {}, {}
local was_ready, was_delayed, seq = J.count(q, 'R'), J.count(q, 'D'), J.count(q, 'seq')
for k, meta in ipairs(fresh) do
  local f = meta.f
  J.write_new(q, meta, seq + k)
  if f.bi then
    local joining = kept_in(joins, f.bi)
    joining[#joining + 1] = meta.i
  end
  if not meta.dl then
    local list = J.ready_list(q, meta.b, f.t, f.f)
    if not lanes[list] then
      lanes[list] = {q = q, t = f.t, f = f.f, b = meta.b}
      order[#order + 1] = list
    end
    local ids = lanes[list]
    ids[#ids + 1] = meta.i
  end
end
for _, list in ipairs(order) do
  local ids = lanes[list]
  Lanes.list(ids, call('RPUSH', list, unpack(ids)) - #ids + 1)
end
for id, ids in pairs(joins) do Batches.add(id, ids) end
if #fresh > 0 then
  J.bump(q, 'seq', #fresh)
  J.bump(q, 'bytes', bytes)
  if #order > 0 then J.wake(q) end
  -- The first one of a kind is told to the planner: of an idle queue it would not look at.
  if (was_ready == 0 and #order > 0) or (was_delayed == 0 and J.count(q, 'D') > 0) then
    call('PUBLISH', 'llmqueue:wake', q)
  end
end
finish_script()
return answers
