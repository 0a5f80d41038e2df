-- Who waits in a queue: of each tenant what is ready, what runs, and how long it is parked.
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV 1 queue, 2 most tenants to look at in each band
-- Returns JSON rows {tenant, waiting, in_flight, parked_ms}, in no order.
-- Complexity: O(tenants looked at + leases).

local q, most = ARGV[1], tonumber(ARGV[2])
local rows, found = {}, {}
for band = 0, 3 do
  for _, tenant in ipairs((N.waiting_in(q, band, most))) do
    local row = found[tenant]
    if not row then
      row = {tenant = tenant, waiting = 0, in_flight = 0, parked_ms = 0}
      found[tenant] = row
      rows[#rows + 1] = row
    end
    row.waiting = row.waiting + N.ready_jobs(q, band, tenant)
    local at = call('ZSCORE', key('parked', q), int(band) .. ' ' .. tenant)
    if at then row.parked_ms = max(row.parked_ms, at - now) end
  end
end
for _, id in ipairs(call('ZRANGE', key('leases', q), 0, -1)) do
  local got = call('HMGET', P .. 'j:' .. id, 't', 'H')
  local row = got[2] ~= FAILURE and found[got[1] or '']
  if row then row.in_flight = row.in_flight + 1 end
end
finish_script()
return #rows > 0 and encode(rows) or '[]'
