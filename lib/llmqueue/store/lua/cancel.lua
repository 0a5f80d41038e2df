-- Cancel a job: at once where nothing was sent, else its worker is told.
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV 1 job id
-- Returns its state's letter after that, or false where there is no such job.
-- Complexity: O(limits).

local job = J.load(ARGV[1])
if not job then return false end
if job.s == 'R' or job.s == 'D' then
  J.finish(job, 'C', 'cancelled', nil, J.unlist(job))
elseif job.s == 'L' then
  J.drop_lease(job)
  if C then J.refund(job) end
  J.finish(job, 'C', 'cancelled', {x = ''})
elseif job.s == 'S' then
  call('HSET', P .. 'j:' .. job.id, 'z', '1')
elseif job.s == 'V' then
  call('ZREM', key('review', job.q), job.id)
  J.finish(job, 'C', 'cancelled in review', {x = ''})
end
finish_script()
return job.s
