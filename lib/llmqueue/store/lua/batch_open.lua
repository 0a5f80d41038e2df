-- Begin a batch, or go on with one that a producer began before.
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV 1 batch id, 2 queue, 3 failures allowed ('' = any), 4 name, then pairs: 'then' | 'catch' |
--   'fin', job JSON {m, p}
-- Returns 'ok', 'unknown' (no such queue) or 'other' (the batch is of another queue).
-- Complexity: O(1). Not allowed when out of memory.

local id, q = ARGV[1], ARGV[2]
local cfg = C and queue_cfg(q)
if not cfg or cfg.gone then return 'unknown' end
local batch = Batches.load(id)
if batch then return batch.v.q == q and 'ok' or 'other' end
call('HSET', P .. 'b:' .. id, 'q', q, 'al', ARGV[3], 'nm', ARGV[4], 'c', int(now))
for i = 5, #ARGV, 2 do call('HSET', P .. 'bf:' .. id, ARGV[i], ARGV[i + 1]) end
call('ZADD', key('batches', q), int(now), id)
finish_script()
return 'ok'
