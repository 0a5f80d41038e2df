-- Exact windows, smoothed by a pacer. A limit is {unit, seconds, limit, name, sub_ms, keep_ms}.
--
-- win:<name> HASH: sub-window index -> charge, 's' their sum, 'o' oldest index kept, 'l' newest.
-- A sub-window leaves the sum `keep_ms` (window + 1 s) after its end.
-- run 'p:<name>' is the pacer's level, 'pt' the time it was refilled up to.

local W = {}

function W.index(limit, at) return floor(at / limit.sub_ms) end

-- Sum charged within the window, after dropping what has left it.
function W.sum(limit)
  local name = P .. 'win:' .. limit.name
  local got = call('HMGET', name, 's', 'o', 'l')
  local sum, oldest, newest = tonumber(got[1]) or 0, tonumber(got[2]), tonumber(got[3])
  if not oldest then return 0 end
  local gone = floor((now - limit.keep_ms) / limit.sub_ms) - 1
  if gone < oldest then return sum end
  if gone >= newest then
    call('DEL', name)
    return 0
  end
  local fields = {}
  for i = oldest, gone do fields[#fields + 1] = int(i) end
  for _, charge in ipairs(call('HMGET', name, unpack(fields))) do
    sum = sum - (tonumber(charge) or 0)
  end
  call('HDEL', name, unpack(fields))
  call('HSET', name, 's', int(sum), 'o', int(gone + 1))
  return sum
end

-- Add `amount` (may be negative) to the sub-window of time `at`; false when that has left already.
function W.add(limit, at, amount)
  if amount == 0 then return true end
  local name = P .. 'win:' .. limit.name
  local index = W.index(limit, at)
  local got = call('HMGET', name, 'o', 'l')
  local oldest, newest = tonumber(got[1]), tonumber(got[2])
  if at < now and (not oldest or index < oldest) then return false end
  call('HINCRBY', name, int(index), int(amount))
  call('HINCRBY', name, 's', int(amount))
  if not oldest then
    call('HSET', name, 'o', int(index), 'l', int(index))
  elseif index > newest then
    call('HSET', name, 'l', int(index))
  end
  return true
end

-- Milliseconds until `charge` fits under `limit` (0 = now), given the current sum.
function W.wait(limit, sum, charge)
  local over = sum + charge - limit.limit
  if over <= 0 then return 0 end
  local flat = call('HGETALL', P .. 'win:' .. limit.name)
  local indices, charges = {}, {}
  for i = 1, #flat, 2 do
    local index = tonumber(flat[i])
    if index then
      indices[#indices + 1] = index
      charges[index] = tonumber(flat[i + 1])
    end
  end
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

if outage and R.num('used') > 0 then W.ramp_from(now) end
