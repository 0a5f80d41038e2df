-- The pacer smooths what the windows allow: a bucket of each limit's rate that may go into debt.
--
-- run 'p:<name>' is its level, 'pt' the time it was refilled up to. Limits longer than an hour have
-- no pacer: a day's calls may go as fast as the shorter limits allow.

-- Share of the full rate that is allowed at time `at`: ramp, slow ramp, storm of 429s.
function W.factor(at)
  local f = 1
  local ramp, slow = R.num('ramp'), R.num('slow')
  if ramp > 0 and at < ramp + C.ramp_ms then
    f = at <= ramp and 0.1 or 0.1 + 0.9 * (at - ramp) / C.ramp_ms
  end
  if slow > 0 and at < slow + C.slow_ramp_ms then
    f = f * (at <= slow and 0.5 or 0.5 + 0.5 * (at - slow) / C.slow_ramp_ms)
  end
  if R.num('half') > at then f = f * 0.5 end
  return f
end

-- Units a millisecond that the pacer lets through at factor 1.
function W.pace(limit)
  if not limit.paced then return math.huge end
  return L.effective(limit) / (limit.seconds * 1000) * 1.03
end

-- Milliseconds between two requests at the full rate; 0 where no limit of requests is paced.
function W.spacing()
  local spacing = 0
  for _, limit in ipairs(C.limits) do
    if limit.unit == 'requests' then spacing = max(spacing, 1 / W.pace(limit)) end
  end
  return spacing
end

-- Refill all pacers up to now.
function W.refill()
  local from = R.num('pt')
  if from >= now then return end
  local f = (W.factor(from) + W.factor(now)) / 2
  for _, limit in ipairs(C.limits) do
    if limit.paced then
      local name = 'p:' .. limit.name
      -- A limit that was just raised is tried gently: without what was saved up before.
      local fresh = from == 0 or L.raises(limit, now) > L.raises(limit, from)
      R.set(name, fresh and min(0, R.num(name)) or R.num(name) + W.pace(limit) * f * (now - from))
    end
  end
  R.set('pt', now)
end

-- Start the pacer at `at` (now or later), empty.
function W.pace_from(at)
  for _, limit in ipairs(C.limits) do
    if limit.paced then R.set('p:' .. limit.name, 0) end
  end
  R.set('pt', max(R.num('pt'), at))
end

-- Begin a ramp at `at` (now or later).
function W.ramp_from(at)
  R.set('ramp', max(at, R.num('ramp')))
  W.pace_from(at)
end

-- Give back (or take) `amounts` (unit -> amount) that were charged at time `at`.
function W.correct(at, amounts)
  for _, limit in ipairs(C.limits) do
    local amount = amounts[limit.unit] or 0
    if amount ~= 0 and W.add(limit, at, amount) and limit.paced then
      local name = 'p:' .. limit.name
      R.set(name, R.num(name) - amount)
    end
  end
end
