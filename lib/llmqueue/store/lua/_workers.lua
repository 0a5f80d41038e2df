-- Workers as their heartbeats and leases show them.

local S = {}

-- Exact number of leases of each worker: counted, so it cannot drift.
function S.in_flight_by_worker(q)
  local counts = {}
  for _, id in ipairs(call('ZRANGE', key('leases', q), 0, -1)) do
    local worker = call('HGET', P .. 'j:' .. id, 'w')
    if worker then counts[worker] = (counts[worker] or 0) + 1 end
  end
  return counts
end
