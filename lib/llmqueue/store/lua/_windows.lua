-- Exact windows: what was charged within any `seconds` (here), or in a calendar day (_days.lua).
--
-- A limit is {unit, seconds, limit, name, sub_ms, keep_ms, paced, days}.
-- win:<name> HASH: sub-window index -> charge, 's' their sum, 'o' oldest index kept, 'l' newest.
-- A sub-window leaves the sum `keep_ms` (window + 1 s) after its end.

local W = {}

local function index_of(limit, at) return floor(at / limit.sub_ms) end

-- The newest sub-window that has left.
local function gone_by(limit) return floor((now - limit.keep_ms) / limit.sub_ms) - 1 end

-- Each window is read once a script, without what has left it, and written once by W.flush().
local windows
each_call(function() windows = {} end)

local function drop_old(name, w, limit)
  local gone = gone_by(limit)
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
  local got = call('HMGET', name, 's', 'o', 'l', int(index_of(limit, now)))
  w = {sum = tonumber(got[1]) or 0, oldest = tonumber(got[2]), newest = tonumber(got[3]), added = {},
    current = tonumber(got[4]) or 0, current_index = index_of(limit, now)}
  windows[limit.name] = w
  if w.oldest then drop_old(name, w, limit) end
  return w
end

-- Sum charged within the window.
function W.sum(limit)
  if limit.days then return D.sum(limit) end
  return window(limit).sum
end

-- Sum charged within the last `seconds`, without the margin that the window has on top.
function W.recent(limit)
  local w, recent = window(limit), index_of(limit, now - limit.seconds * 1000)
  if not w.oldest or w.oldest > recent then return w.sum end
  local fields, sum = {}, w.sum
  for i = w.oldest, recent do
    fields[#fields + 1] = int(i)
    sum = sum - (w.added[i] or 0)
  end
  for _, charge in ipairs(call('HMGET', P .. 'win:' .. limit.name, unpack(fields))) do
    sum = sum - (tonumber(charge) or 0)
  end
  return sum
end

local function add(limit, index, amount)
  local w = window(limit)
  w.added[index] = (w.added[index] or 0) + amount
  w.sum = w.sum + amount
  w.oldest, w.newest = min(w.oldest or index, index), max(w.newest or index, index)
  w.dirty = true
end

-- Add `amount` (may be negative) to the sub-window of time `at`; false when that has left already.
function W.add(limit, at, amount)
  if amount == 0 then return true end
  if limit.days then return D.add(limit, at, amount) end
  local w, index = window(limit), index_of(limit, at)
  if at < now and (not w.oldest or index < w.oldest) then return false end
  add(limit, index, amount)
  return true
end

function W.flush()
  D.flush()
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
  if limit.days then return D.wait(limit, charge) end
  local w = window(limit)
  local over = w.sum + charge - L.room_for(limit, charge)
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

-- Whether what was charged at `at` counts elsewhere now: in another sub-window, or day.
function W.moved(limit, at)
  if limit.days then return D.moved(limit, at) end
  return index_of(limit, at) ~= index_of(limit, now)
end

-- Whether `charge`, charged at `at`, fits now: of what has left its window, all over again.
function W.fits(limit, at, charge)
  if limit.days then return D.fits(limit, at, charge) end
  local more = index_of(limit, at) > gone_by(limit) and 0 or charge
  return W.sum(limit) + more <= L.room_for(limit, charge)
end

-- Milliseconds until something leaves the window; of an empty one, the window.
function W.frees_ms(limit)
  if limit.days then return D.frees_ms(limit) end
  local w = window(limit)
  if not w.oldest or w.sum <= 0 then return limit.keep_ms end
  return max(1, (w.oldest + 1) * limit.sub_ms + limit.keep_ms - now)
end

-- What 429s refused is charged as well, where the provider keeps reservations: a window of its own.
local refused
each_call(function() refused = {} end)
local function refusals(limit)
  local found = refused[limit.name]
  if not found then
    found = {name = limit.name .. '/429', seconds = limit.seconds, sub_ms = limit.sub_ms,
      keep_ms = limit.keep_ms}
    refused[limit.name] = found
  end
  return found
end

-- A call charged at `at` was refused; `amounts` of it stay charged.
function W.refuse(at, amounts)
  for _, limit in ipairs(C.limits) do
    local index, amount = index_of(limit, at), amounts[limit.unit]
    if limit.paced and amount > 0 and index > gone_by(limit) then
      add(refusals(limit), index, amount)
    end
  end
end

-- What the provider let through within the last `seconds`.
function W.accepted(limit) return W.recent(limit) - W.recent(refusals(limit)) end
