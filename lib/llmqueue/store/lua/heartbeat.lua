-- Renew a worker's leases, take back those that a failover has lost, tell the worker what it lost,
-- and show it to the planner.
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV 1 queue, 2 worker, 3 slots, 4 longest remaining ms, 5 credential, 6 ready '1'/'0', 7 pid,
--   then for each lease: job id, fence, ms since it was sent (-1: it was not; '': nothing is said),
--   reserved input tokens, output tokens
-- Returns {draining 1/0, lost ids, cancelled ids}.
-- Complexity: O(leases) + at most 16 units of housekeeping.

local q, worker = ARGV[1], ARGV[2]
local lost, cancelled = {}, {}
local name = P .. 'w:' .. worker
call('HSET', name, 'q', q, 'n', ARGV[3], 'f', int((#ARGV - 7) / 5), 'l', ARGV[4], 'p', ARGV[5],
  'y', ARGV[6], 'i', ARGV[7], 't', int(now))
call('EXPIRE', name, 3600)
call('ZADD', P .. 'workers', int(now), worker)

local function renew(job)
  call('ZADD', key('leases', job.q), int(now + (C and C.lease_ms or 10000)), job.id)
  if job.z then cancelled[#cancelled + 1] = job.id end
end

for i = 8, #ARGV, 5 do
  local id, fence, sent_ms = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  local job = J.load(id)
  local mine = job and job.x == fence
  if mine and (job.s == 'L' or job.s == 'S') then
    if job.s == 'L' and sent_ms and sent_ms >= 0 then A.sent(job, sent_ms) end
    renew(job)
  elseif mine and job.s == 'V' then
    -- It was taken for dead, yet still calls: the review is over.
    J.move(job, 'S')
    call('ZREM', key('review', job.q), id)
    renew(job)
  elseif job and job.s == 'C' then
    cancelled[#cancelled + 1] = id
  elseif sent_ms and A.unknown_here(job, fence, worker) then
    A.take_back(job, fence, worker, sent_ms, tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]))
    renew(job)
  else
    lost[#lost + 1] = id
  end
end

if C then H.run() end
local mark = tonumber(call('HGET', name, 'd'))
finish_script()
return {mark and mark > now and 1 or 0, lost, cancelled}
