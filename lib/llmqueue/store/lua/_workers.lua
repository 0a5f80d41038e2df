-- Workers as their heartbeats and leases show them.

local S = {}

-- Number of jobs that each worker holds.
function S.in_flight_by_worker(q)
  J.flush()
  local counts, flat = {}, call('HGETALL', key('held', q))
  for i = 1, #flat, 2 do counts[flat[i]] = tonumber(flat[i + 1]) end
  return counts
end
