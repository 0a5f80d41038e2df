-- Several queues on one budget: start-time fair queueing with weights.
--
-- run 'v:<queue>': the queue's virtual time, the part of the budget that it was granted by its
--   weight; 'vt': that of the last grant. 'd:<queue>': until when its demand is live: a claim of it
--   was refused for the budget, and the wait that it was told runs or has ended less than GRACE_MS
--   ago. A queue whose demand is not live is owed nothing: its share is lent.

local GRACE_MS = 2000
-- However long the wait, who is still there asks again after this time: a day's limit must not keep
-- the share of a queue whose workers are gone until midnight.
local LONGEST_WAIT_MS = 30000

local function weight(q) return queue_cfg(q).weight end
local function shared() return #C.queues > 1 end
local function live(q) return R.num('d:' .. q) >= now end

-- The part of the budget that a call with these charges is: that of the limit it takes most of.
function V.cost(amounts)
  local cost = 0
  for _, limit in ipairs(C.limits) do cost = max(cost, amounts[limit.unit] / limit.limit) end
  return cost > 0 and cost or 1 / (C.max_in_flight or 1)
end

-- Where a queue begins that was owed nothing until now: with those that wait, not before them.
local function beginning(q)
  local least
  for _, other in ipairs(C.queues) do
    if other ~= q and live(other) then least = min(least or math.huge, R.num('v:' .. other)) end
  end
  return max(R.num('v:' .. q), least or R.num('vt'))
end

-- Must this queue wait since another one that wants its share is more than a job behind?
function V.ahead(q, cost)
  if not shared() then return false end
  local mine = live(q) and R.num('v:' .. q) or beginning(q)
  for _, other in ipairs(C.queues) do
    if other ~= q and queue_cfg(other) and live(other)
      and mine - R.num('v:' .. other) > cost / weight(other) and not J.suspended(other) then
      return true
    end
  end
  return false
end

function V.pay(q, cost)
  if not shared() then return end
  local from = live(q) and R.num('v:' .. q) or beginning(q)
  R.set('vt', from)
  R.set('v:' .. q, from + cost / weight(q))
end

-- Nothing was sent: the queue is owed it again.
function V.refund(q, amounts)
  if not shared() or not queue_cfg(q) then return end
  R.set('v:' .. q, R.num('v:' .. q) - V.cost(amounts) / weight(q))
end

-- The queue could use more than it got, and was told to come again in `wait` ms.
function V.want(q, wait)
  if not shared() then return end
  if not live(q) then R.set('v:' .. q, beginning(q)) end
  R.set('d:' .. q, ceil(now + min(wait, LONGEST_WAIT_MS) + GRACE_MS))
end

-- Time between two grants of this queue where the budget lets one through every `spacing` ms.
function V.spacing(q, spacing)
  if not shared() then return spacing end
  local all = weight(q)
  for _, other in ipairs(C.queues) do
    if other ~= q and queue_cfg(other) and live(other) then all = all + weight(other) end
  end
  return spacing * all / weight(q)
end
