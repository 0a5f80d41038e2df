-- Set, renew or lift drain marks, and read back what each worker runs.
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV 1 queue, 2 ms to hold (0 = lift), then workers
-- Returns in flight of each worker after the mark.
-- Complexity: O(workers).

local q, hold = ARGV[1], tonumber(ARGV[2])
local counts = S.in_flight_by_worker(q)
local answers = {}
for i = 3, #ARGV do
  local name = P .. 'w:' .. ARGV[i]
  if hold > 0 then
    if call('EXISTS', name) == 1 then call('HSET', name, 'd', int(now + hold)) end
  else
    call('HDEL', name, 'd')
  end
  answers[#answers + 1] = counts[ARGV[i]] or 0
end
if hold == 0 then J.wake(q) end
finish_script()
return answers
