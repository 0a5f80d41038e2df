-- Keep how far a handler has come.
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV 1 job id, 2 fence, 3 JSON
-- Returns 1, or 0 where the fence is not the job's. Complexity: O(1).

local got = call('HMGET', P .. 'j:' .. ARGV[1], 'x', 's')
if got[1] ~= ARGV[2] or (got[2] ~= 'L' and got[2] ~= 'S') then return 0 end
call('SET', P .. 'p:' .. ARGV[1], ARGV[3])
return 1
