-- Calendar days of a limit with `days`: the ms at which days begin in its time zone.
--
-- win:<name> HASH: second at which a day begins -> what was charged in it.
-- The call may arrive a second later than it is charged, and clocks differ: what is charged within a
-- second of midnight counts for both days. Days follow the server's own clock: unlike the logical
-- one, it steps back.

local D = {}
local DAY_MS, MARGIN_MS, KEPT_MS = 86400000, 1000, 3 * 86400000

local function wall(at) return at - R.num('back') end

-- When the day of wall time `at` begins and ends. Outside of what is configured days have 24 h.
local function day_of(limit, at)
  local days = limit.days
  local first, last = days[1], days[#days]
  if at < first then
    local start = first - ceil((first - at) / DAY_MS) * DAY_MS
    return start, start + DAY_MS
  end
  if at >= last then
    local start = last + floor((at - last) / DAY_MS) * DAY_MS
    return start, start + DAY_MS
  end
  local i = min(#days - 1, floor((at - first) / DAY_MS) + 1)
  while days[i] > at do i = i - 1 end
  while days[i + 1] <= at do i = i + 1 end
  return days[i], days[i + 1]
end

-- The one or two days that a charge at wall time `at` counts for: {start, end}.
local function days_at(limit, at)
  local start, finish = day_of(limit, at - MARGIN_MS)
  local found = {{start, finish}}
  if finish <= at + MARGIN_MS then
    start, finish = day_of(limit, at + MARGIN_MS)
    found[2] = {start, finish}
  end
  return found
end

local function field(day) return int(day[1] / 1000) end

-- Each window is read once a script, and written once by D.flush().
local windows
each_call(function() windows = {} end)
local function window(limit)
  local w = windows[limit.name]
  if not w then
    w = {sums = read_hash(P .. 'win:' .. limit.name, {}), added = {}}
    windows[limit.name] = w
  end
  return w
end

local function sum_of(limit, day) return tonumber(window(limit).sums[field(day)]) or 0 end

-- Sum charged in the fullest of the days that count now.
function D.sum(limit)
  local most = 0
  for _, day in ipairs(days_at(limit, wall(now))) do most = max(most, sum_of(limit, day)) end
  return most
end

function D.add(limit, at, amount)
  local w = window(limit)
  for _, day in ipairs(days_at(limit, wall(at))) do
    local name = field(day)
    w.sums[name] = (tonumber(w.sums[name]) or 0) + amount
    w.added[name] = (w.added[name] or 0) + amount
  end
  return true
end

function D.flush()
  for name, w in pairs(windows) do
    name = P .. 'win:' .. name
    for day, amount in pairs(w.added) do
      if amount ~= 0 then call('HINCRBY', name, day, int(amount)) end
    end
    if next(w.added) then
      for day in pairs(w.sums) do
        if tonumber(day) * 1000 < wall(now) - KEPT_MS then call('HDEL', name, day) end
      end
      w.added = {}
    end
  end
end

-- Milliseconds until `charge` fits (0 = now), given the days of `at` in which it is charged already.
local function wait_for(limit, charge, at)
  local charged, wait = {}, 0
  for _, day in ipairs(at and days_at(limit, wall(at)) or {}) do charged[day[1]] = true end
  for _, day in ipairs(days_at(limit, wall(now))) do
    local more = charged[day[1]] and 0 or charge
    if sum_of(limit, day) + more > L.room_for(limit, charge) then
      wait = max(wait, day[2] + MARGIN_MS - wall(now))
    end
  end
  return wait
end

function D.wait(limit, charge) return wait_for(limit, charge) end
function D.fits(limit, at, charge) return wait_for(limit, charge, at) == 0 end

-- Whether what was charged at `at` would count for other days now.
function D.moved(limit, at)
  local was, is = days_at(limit, wall(at)), days_at(limit, wall(now))
  return was[1][1] ~= is[1][1] or #was ~= #is
end

-- Milliseconds until the day that counts now is over.
function D.frees_ms(limit)
  return days_at(limit, wall(now))[1][2] + MARGIN_MS - wall(now)
end
