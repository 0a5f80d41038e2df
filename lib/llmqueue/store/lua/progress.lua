-- Keep and tell how far a running job is.
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV 1 job id, 2 fence, 3 fraction, 4 message
-- Returns 1, or 0 where the fence is not the job's present one: nothing is written then.
-- Complexity: O(1).

local id = ARGV[1]
local got = call('HMGET', P .. 'j:' .. id, 's', 'x')
if got[2] ~= ARGV[2] or (got[1] ~= 'L' and got[1] ~= 'S') then return 0 end
local progress = encode({at = now / 1000, fraction = tonumber(ARGV[3]), message = ARGV[4]})
call('SET', P .. 'p:' .. id, progress)
Events.progressed(id, got[1], progress)
finish_script()
return 1
