-- A worker is gone for good; it holds no lease any more.
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV 1 worker
-- Returns nothing. Complexity: O(log workers).

call('DEL', P .. 'w:' .. ARGV[1])
call('ZREM', P .. 'workers', ARGV[1])
call('ZREM', P .. 'told', ARGV[1])
finish_script()
