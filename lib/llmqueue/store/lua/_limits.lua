-- What each limit allows now: declared, as the provider's headers say, as its 429s taught.
--
-- run: h:<name> limit that headers name, ht:<name> when, hs when the newest response with limits was
--   sent; l:<name> learned limit, ln:<name> when, lf:<name> its first raise, lh:<name> ms until then.
-- A learned limit is a function of time: raised step by step from `lf` on, over once it reaches the
-- ceiling. So only 429s and changed headers write, and no claim does.

local L = {}
local HEADERS_LAST_MS = 3600000
local MOST_RAISE = 100  -- a header that names more than so many times the declared is no limit
local STEP, STEP_MS, HOLD_MS, LONGEST_HOLD_MS = 1.25, 10000, 15000, 60000

-- What the limit may rise to: the declared one, or what headers make of it.
local function ceiling(limit)
  local heard = R.num('h:' .. limit.name)
  if heard < 1 or now - R.num('ht:' .. limit.name) > HEADERS_LAST_MS then return limit.limit end
  if C.learn_up and heard <= MOST_RAISE * limit.limit then return heard end
  return min(limit.limit, heard)
end

-- How often it was raised up to time `at`.
function L.raises(limit, at)
  local from = R.num('lf:' .. limit.name)
  return at < from and 0 or min(60, floor((at - from) / STEP_MS) + 1)
end

-- The one number that claims, sent and the planner go by; asked several times for each job.
local effective
each_call(function() effective = {} end)
local function find_effective(limit)
  local most, learned = ceiling(limit), R.num('l:' .. limit.name)
  if learned == 0 then return most end
  return min(most, ceil(learned * STEP ^ L.raises(limit, now)))
end
function L.effective(limit)
  local known = effective[limit.name]
  if not known then
    known = find_effective(limit)
    effective[limit.name] = known
  end
  return known
end

-- Whether 429s keep it below what is declared and said.
function L.learned(limit)
  return R.num('l:' .. limit.name) > 0 and L.effective(limit) < ceiling(limit)
end

function L.any_learned()
  for _, limit in ipairs(C.limits) do
    if L.learned(limit) then return true end
  end
  return false
end

-- What a charge may fill a limit up to: one that is larger than what was learned waits for an empty
-- window, and is let through.
function L.room_for(limit, charge) return max(L.effective(limit), charge) end

-- A call that no window will ever hold.
function L.too_large(limit, charge) return charge > max(limit.limit, L.effective(limit)) end

-- The declared limit that a header of this unit and window (ms) speaks of.
local function meant(unit, window_ms)
  local found, least = nil, 2
  for _, limit in ipairs(C.limits) do
    local ratio = limit.seconds * 1000 / window_ms
    if ratio < 1 then ratio = 1 / ratio end
    if limit.unit == unit and ratio <= least then found, least = limit, ratio end
  end
  return found
end

-- Limits in the headers of a response to a call sent at `sent_at`: {unit, window ms or 0, limit}.
function L.hear(hints, sent_at)
  if sent_at < R.num('hs') then return end
  R.set('hs', sent_at)
  for _, hint in ipairs(hints) do
    local window_ms = hint[2] > 0 and hint[2] or C.header_window_ms
    local limit = window_ms and meant(hint[1], window_ms)
    if limit then
      effective = {}
      local name, at = 'h:' .. limit.name, 'ht:' .. limit.name
      if R.num(name) ~= hint[3] then R.set(name, hint[3]) end
      if now - R.num(at) > 60000 then R.set(at, now) end
    end
  end
end

-- The provider refused although no more than `accepted` was let through: hold that, then try more,
-- from `free_at` on. Where a raise was refused, the next one is tried later; returns whether it was.
function L.learn(limit, accepted, free_at)
  local before, known = L.effective(limit), L.learned(limit)
  local hold = known and R.num('lh:' .. limit.name) or HOLD_MS
  local tried = known and L.raises(limit, now) > 0
  if tried then hold = min(2 * hold, LONGEST_HOLD_MS) end
  R.set('l:' .. limit.name, max(1, floor(max(before / 2, min(before, accepted)))))
  R.set('lh:' .. limit.name, hold)
  R.set('lf:' .. limit.name, free_at + hold)
  R.set('ln:' .. limit.name, now)
  effective = {}
  return tried
end

-- A call that had been sent when a limit was learned was refused, too: it was none of the accepted.
function L.unlearn(charged, sent_at)
  for _, limit in ipairs(C.limits) do
    if L.learned(limit) and sent_at <= R.num('ln:' .. limit.name) then
      R.set('l:' .. limit.name, max(1, R.num('l:' .. limit.name) - charged[limit.unit]))
      effective = {}
    end
  end
end
