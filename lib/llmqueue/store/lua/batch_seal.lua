-- End a batch's enqueueing: it ends with its last job.
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV 1 batch id
-- Returns 1, or 0 where there is no such batch.
-- Complexity: O(1). Runs when memory is used up: its jobs are there already.

local found = Batches.seal(ARGV[1])
finish_script()
return found and 1 or 0
