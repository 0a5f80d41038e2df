-- Limits of single tenants: calls a second with a burst, calls at the same time.
--
-- th:<queue> HASH tenant -> jobs that it has with workers, kept while their number is limited; failure
-- jobs call nobody and are not counted. tat:<queue>:<tenant> STRING (ms, expires with its meaning): the
-- time up to which its calls are used up, as in the generic cell rate algorithm: a call is allowed
-- from that time on, or `burst - 1` calls before it.
-- Jobs without a tenant are together one tenant, ''.

-- A tenant at its calls in flight is looked at again this much later at the latest; the end of one of
-- its calls brings it back at once.
local FULL_MS = 5000

local tats, paid, holds, changed
each_call(function() tats, paid, holds, changed = {}, {}, {}, {} end)

function N.limits(q) return queue_cfg(q).tenant end

local function tat_key(q, tenant) return key('tat', q, tenant) end

local function tat_of(q, tenant)
  local name = tat_key(q, tenant)
  if not tats[name] then tats[name] = tonumber(call('GET', name)) or 0 end
  return tats[name]
end

-- Jobs of a tenant that workers hold; right only while their number is limited.
function N.held(q, tenant)
  local of_queue = kept_in(holds, q)
  if not of_queue[tenant] then
    of_queue[tenant] = tonumber(call('HGET', key('th', q), tenant)) or 0
  end
  return of_queue[tenant] + (kept_in(changed, q)[tenant] or 0)
end

function N.hold(q, tenant, by)
  local limits = queue_cfg(q) and N.limits(q)
  if not limits or not limits.in_flight then return end
  local of_queue = kept_in(changed, q)
  of_queue[tenant] = (of_queue[tenant] or 0) + by
end

-- When a tenant may make its next call, by its calls a second; nil: now.
function N.rate_until(q, tenant)
  local limits = N.limits(q)
  if not limits or not limits.every_ms then return nil end
  local at = tat_of(q, tenant) - (limits.burst - 1) * limits.every_ms
  return at > now and ceil(at) or nil
end

-- When its next job may begin.
function N.closed_until(q, tenant)
  local limits = N.limits(q)
  if not limits then return nil end
  if limits.in_flight and N.held(q, tenant) >= limits.in_flight then return now + FULL_MS end
  return N.rate_until(q, tenant)
end

-- One call more (1) or, since nothing was sent, one less (-1).
function N.pay(q, tenant, calls)
  local limits = N.limits(q)
  if not limits or not limits.every_ms then return end
  local at = tat_of(q, tenant)
  if calls > 0 then at = max(at, now) end
  tats[tat_key(q, tenant)] = at + calls * limits.every_ms
  paid[tat_key(q, tenant)] = true
end

-- A tenant that waited for the end of one of its calls need not wait any more.
function N.freed(q, tenant)
  local limits = queue_cfg(q) and N.limits(q)
  if not limits or not limits.in_flight then return end
  for band = 0, 3 do Lanes.unpark(q, band .. ' ' .. tenant) end
end

-- Other limits from now on: count what each tenant has with workers, and let housekeeping bring the
-- parked ones back, since their times were those of the old limits.
function N.begin_anew(q)
  call('ZUNIONSTORE', key('parked', q), 1, key('parked', q), 'WEIGHTS', 0)
  local counts = {}
  for _, id in ipairs(call('ZRANGE', key('leases', q), 0, -1)) do
    local got = call('HMGET', P .. 'j:' .. id, 't', 'H')
    local tenant = got[1] or ''
    if got[2] ~= FAILURE then counts[tenant] = (counts[tenant] or 0) + 1 end
  end
  call('DEL', key('th', q))
  for tenant, n in pairs(counts) do call('HSET', key('th', q), tenant, n) end
end

function N.flush()
  for name in pairs(paid) do
    local left = ceil(tats[name] - now)
    if left > 0 then call('SET', name, tats[name], 'PX', left) else call('DEL', name) end
  end
  for q, tenants in pairs(changed) do
    local name = key('th', q)
    for tenant, by in pairs(tenants) do
      if by ~= 0 and call('HINCRBY', name, tenant, by) <= 0 then call('HDEL', name, tenant) end
    end
  end
  paid, holds, changed = {}, {}, {}
end

-- ---------------------------------------------------------------- who waits

local SAMPLED = 300

-- Tenants with something ready in any band, counted once a band, and of these the parked ones.
function N.waiting(q)
  local parked, all = call('ZCARD', key('parked', q)), 0
  for band = 0, 3 do all = all + call('LLEN', key('lanes', q, band)) end
  return all + parked, parked
end

-- Up to `most` tenants that have something ready in a band, and how many there are in all.
function N.waiting_in(q, band, most)
  local name = key('lanes', q, band)
  local found, all = call('LRANGE', name, 0, most - 1), call('LLEN', name)
  local parked = call('ZRANGE', key('parked', q), 0, most - 1)
  local each = call('ZCARD', key('parked', q)) / max(1, #parked)
  for _, member in ipairs(parked) do
    local of_band, tenant = string.match(member, '^(%d) (.*)$')
    if tonumber(of_band) == band then
      all = all + each
      if #found < most then found[#found + 1] = tenant end
    end
  end
  return found, all
end

function N.ready_jobs(q, band, tenant)
  local n = 0
  for _, feature in ipairs(call('LRANGE', key('lanes', q, band, tenant), 0, SAMPLED - 1)) do
    n = n + call('LLEN', J.ready_list(q, band, tenant, feature))
  end
  return n
end

-- How many jobs of one tenant its limits let run at the same time.
local function most_at_once(q, limits)
  local most = limits.in_flight or math.huge
  if not limits.every_ms then return most end
  local grants = J.count(q, 'grants')
  local mean_ms = grants > 0 and J.count(q, 'busy') / grants or 10000
  return min(most, max(1, ceil(mean_ms / limits.every_ms)))
end

-- Of a band's ready jobs those that their tenants' limits let run beside what runs.
local function by_tenants(q, band, most)
  local tenants, all = N.waiting_in(q, band, SAMPLED)
  if #tenants == 0 then return 0 end
  local may = 0
  for _, tenant in ipairs(tenants) do
    may = may + min(N.ready_jobs(q, band, tenant), max(0, most - N.held(q, tenant)))
  end
  return ceil(may * all / #tenants)
end

-- Of the ready jobs those that the limits of tenants and bands let run: more workers than for them
-- would only wait. Of very many tenants it is an estimate from some of them.
function N.claimable(q, ready)
  local limits, bands = N.limits(q), queue_cfg(q).bands
  if ready == 0 or not (limits or bands) then return ready end
  local most = limits and most_at_once(q, limits)
  local may = J.count(q, 'free')  -- failure jobs call nobody
  for band = 0, 3 do
    local of_band = J.ready_in(q, band)
    if most and of_band > 0 then
      of_band = min(of_band, by_tenants(q, band, most) + call('ZCARD', key('front', q, band)))
    end
    if bands and (bands[band + 1] or 0) > 0 then
      of_band = min(of_band, max(0, bands[band + 1] - J.held_in(q, band)))
    end
    may = may + of_band
  end
  return may
end
