-- Cancel a job: at once where nothing was sent, else its worker is told.
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV 1 job id
-- Returns its state's letter after that, or false where there is no such job.
-- Complexity: O(limits).

local job = J.load(ARGV[1])
if not job then return false end
J.cancel(job)
finish_script()
return job.s
