-- Give unsent jobs back to the front, at no cost and no attempt. A job marked sent whose answer was
-- lost on the way is unsent too: only its worker knows, and says so here.
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV pairs: job id, fence
-- Returns the number released; stale pairs are passed over.
-- Complexity: O(jobs x limits).

local released = 0
for i = 1, #ARGV, 2 do
  local job = J.load(ARGV[i])
  if C and job and job.x == ARGV[i + 1] and (job.s == 'L' or job.s == 'S') then
    J.release(job)
    released = released + 1
  end
end
finish_script()
return released
