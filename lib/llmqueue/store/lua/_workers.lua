-- Workers as their heartbeats and leases show them.

local S = {}

-- Number of jobs that each worker holds.
function S.in_flight_by_worker(q)
  J.flush()
  local counts = read_hash(key('held', q), {})
  for worker, n in pairs(counts) do counts[worker] = tonumber(n) end
  return counts
end
