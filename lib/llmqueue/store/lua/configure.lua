-- Write the configuration of a budget and its queues; makes the epoch where there is none.
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV 1 budget JSON, 2 new epoch, then pairs: queue, its JSON
-- Returns {epoch, generation}. Complexity: O(queues + leases of changed ones).

local epoch = call('HGET', KEYS[1], 'epoch')
if not epoch then
  epoch = ARGV[2]
  call('HSET', KEYS[1], 'epoch', epoch)
end
local changed = call('HGET', KEYS[1], 'json') ~= ARGV[1]
if changed then call('HSET', KEYS[1], 'json', ARGV[1]) end
for i = 3, #ARGV, 2 do
  local q, name = ARGV[i], key('cfg', ARGV[i])
  local was = call('HGET', name, 'json')
  if was ~= ARGV[i + 1] then
    changed = true
    if was and (decode(was).suspended or false) ~= (decode(ARGV[i + 1]).suspended or false) then
      call('HDEL', key('st', q), 'sus')
    end
    call('HSET', name, 'json', ARGV[i + 1])
    N.begin_anew(q)
    call('ZADD', key('wake', q), 1, 'm')
  end
end
if changed then call('HINCRBY', KEYS[1], 'gen', 1) end
R.flush()
return {epoch, tonumber(call('HGET', KEYS[1], 'gen')) or 0}
