-- Exact windows, smoothed by a pacer. A limit is {unit, seconds, limit, name, sub_ms, keep_ms}.
--
-- win:<name> HASH: sub-window index -> charge, 's' their sum, 'o' oldest index kept, 'l' newest.
-- A sub-window leaves the sum `keep_ms` (window + 1 s) after its end.
-- run 'p:<name>' is the pacer's level, 'pt' the time it was refilled up to.

local W = {}

function W.index(limit, at) return floor(at / limit.sub_ms) end

-- Each window is read once a script, without what has left it, and written once by W.flush().
local windows
each_call(function() windows = {} end)

local function drop_old(name, w, limit)
  local gone = floor((now - limit.keep_ms) / limit.sub_ms) - 1
  if gone < w.oldest then return end
  if gone >= w.newest then
    call('DEL', name)
    w.sum, w.oldest, w.newest, w.current = 0, nil, nil, 0
    return
  end
  local fields = {}
  for i = w.oldest, gone do fields[#fields + 1] = int(i) end
  for _, charge in ipairs(call('HMGET', name, unpack(fields))) do
    w.sum = w.sum - (tonumber(charge) or 0)
  end
  call('HDEL', name, unpack(fields))
  w.oldest, w.dirty = gone + 1, true
end

local function window(limit)
  local w = windows[limit.name]
  if w then return w end
  local name = P .. 'win:' .. limit.name
  local got = call('HMGET', name, 's', 'o', 'l', int(W.index(limit, now)))
  w = {sum = tonumber(got[1]) or 0, oldest = tonumber(got[2]), newest = tonumber(got[3]), added = {},
    current = tonumber(got[4]) or 0, current_index = W.index(limit, now)}
  windows[limit.name] = w
  if w.oldest then drop_old(name, w, limit) end
  return w
end

-- Sum charged within the window.
function W.sum(limit) return window(limit).sum end

-- Add `amount` (may be negative) to the sub-window of time `at`; false when that has left already.
function W.add(limit, at, amount)
  if amount == 0 then return true end
  local w, index = window(limit), W.index(limit, at)
  if at < now and (not w.oldest or index < w.oldest) then return false end
  w.added[index] = (w.added[index] or 0) + amount
  w.sum = w.sum + amount
  w.oldest, w.newest = w.oldest or index, max(w.newest or index, index)
  w.dirty = true
  return true
end

function W.flush()
  for name, w in pairs(windows) do
    if w.dirty then
      name = P .. 'win:' .. name
      local current = w.added[w.current_index]
      w.added[w.current_index] = nil
      for index, amount in pairs(w.added) do
        if amount ~= 0 then call('HINCRBY', name, int(index), amount) end
      end
      if current then
        w.current = w.current + current
        call('HSET', name, 's', w.sum, 'o', w.oldest, 'l', w.newest, int(w.current_index), w.current)
      else
        call('HSET', name, 's', w.sum, 'o', w.oldest, 'l', w.newest)
      end
      w.added, w.dirty = {}, false
    end
  end
end

-- Milliseconds until `charge` fits under `limit` (0 = now).
function W.wait(limit, charge)
  local w = window(limit)
  local over = w.sum + charge - limit.limit
  if over <= 0 then return 0 end
  local charges, indices = {}, {}
  local flat = call('HGETALL', P .. 'win:' .. limit.name)
  for i = 1, #flat, 2 do
    local index = tonumber(flat[i])
    if index then charges[index] = tonumber(flat[i + 1]) end
  end
  for index, amount in pairs(w.added) do charges[index] = (charges[index] or 0) + amount end
  for index in pairs(charges) do indices[#indices + 1] = index end
  table.sort(indices)
  for _, index in ipairs(indices) do
    over = over - charges[index]
    if over <= 0 then return max(1, (index + 1) * limit.sub_ms + limit.keep_ms - now) end
  end
  return limit.keep_ms
end

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
function W.pace(limit) return limit.limit / (limit.seconds * 1000) * 1.03 end

-- Refill all pacers up to now.
function W.refill()
  local from = R.num('pt')
  if from >= now then return end
  local f = (W.factor(from) + W.factor(now)) / 2
  for _, limit in ipairs(C.limits) do
    local name = 'p:' .. limit.name
    if from == 0 then
      R.set(name, 0)
    else
      R.set(name, R.num(name) + W.pace(limit) * f * (now - from))
    end
  end
  R.set('pt', now)
end

-- Begin a ramp at `at` (now or later): the pacer starts there, empty.
function W.ramp_from(at)
  R.set('ramp', max(at, R.num('ramp')))
  for _, limit in ipairs(C.limits) do
    R.set('p:' .. limit.name, 0)
  end
  R.set('pt', max(R.num('pt'), at))
end

-- Give back (or take) `amounts` (unit -> amount) that were charged at time `at`.
function W.correct(at, amounts)
  for _, limit in ipairs(C.limits) do
    local amount = amounts[limit.unit] or 0
    if amount ~= 0 and W.add(limit, at, amount) then
      local name = 'p:' .. limit.name
      R.set(name, R.num(name) - amount)
    end
  end
end
