-- Cancel jobs of a batch that have not ended, some at a time. The batch is sealed.
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV 1 batch id, 2 number of jobs to pass over, 3 number of jobs to look at
-- Returns the number of jobs looked at (fewer than asked: it was the end), or -1: no such batch.
-- Complexity: O(jobs looked at x limits).

local id, from, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if not Batches.seal(id, true) then return -1 end
local ids = call('LRANGE', P .. 'bj:' .. id, from, from + most - 1)
for _, job_id in ipairs(ids) do
  local job = J.load(job_id)
  if job then J.cancel(job) end
end
finish_script()
return #ids
