-- What a person asks of a queue: suspend, unsuspend, resume (lift pauses by a probe now).
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV 1 queue, 2 'suspend' | 'unsuspend' | 'resume'
-- Returns the number of pauses and breakers that will be probed now. Complexity: O(pauses).

local q, verb = ARGV[1], ARGV[2]
local touched = 0
if verb == 'resume' then
  local flat = call('HGETALL', P .. 'pause')
  for i = 1, #flat, 2 do
    local pause = decode(flat[i + 1])
    pause.n = now
    T.save_pause(flat[i], pause)
    touched = touched + 1
  end
  if (R.v.brk or 'c') ~= 'c' then
    R.set('bru', now)
    touched = touched + 1
  end
else
  call('HSET', key('st', q), 'sus', verb == 'suspend' and '1' or '0')
end
J.wake(q)
call('PUBLISH', 'llmqueue:wake', q)
finish_script()
return touched
