-- A worker is gone for good; it holds no lease any more.
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV 1 queue, 2 worker
-- Returns nothing. Complexity: O(log workers).

local q, worker = ARGV[1], ARGV[2]
call('DEL', P .. 'w:' .. worker)
call('ZREM', P .. 'workers', worker)
call('ZREM', key('told', q), worker)
finish_script()
