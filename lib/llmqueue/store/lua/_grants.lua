-- What a call charges, what keeps it from leaving now, and who is told to wait for how long: the same
-- for a claim and for a further call of a job that runs.

local G = {}

-- ---------------------------------------------------------------- turns of those who wait

-- Where a waiter stands, before it asked again. Read it before the first write.
local told
each_call(function() told = nil end)
function G.find_place(q, waiter) told = call('ZSCORE', key('told', q), waiter) end
function G.stop_waiting(q, waiter)
  if told then call('ZREM', key('told', q), waiter) end
end
-- It got something: what it is told next is for another call.
function G.lose_place() told = nil end

-- The first moment that no other waiter of the queue was told: about one question a grant in all. A
-- waiter that asks again before its time keeps its place among those who wait.
function G.tell(q, waiter, wait, spacing)
  local line = key('told', q)
  call('ZREMRANGEBYSCORE', line, '-inf', int(now - 100))
  local before = call('ZCOUNT', line, '-inf', told and '(' .. told or '+inf')
  local mine = wait + before * V.spacing(q, spacing)
  call('ZADD', line, int(now + mine), waiter)
  V.want(q, mine)
  return mine
end

-- ---------------------------------------------------------------- what closes the whole budget

-- Wait ms and reason where no call may leave; else nil, nil, and what it would probe: the pause of its
-- credential (or nil), the breaker (true or false). `mine`: "id fence" of a run that may be a probe.
function G.closed(q, waiter, credential, mine)
  local pause = T.pause_of(credential)
  if pause and pause.p == mine then pause = nil end
  if pause and (pause.n > now or T.alive(pause.p)) then return max(1000, pause.n - now), 'paused' end
  local blocked = R.num('blk') - now
  if blocked > 0 then
    return G.tell(q, waiter, blocked, W.spacing()), 'blocked'
  end
  local breaker, breaker_wait = T.breaker()
  if breaker == 'open' and (R.v.brp or '') ~= mine then return breaker_wait, 'breaker' end
  return nil, nil, pause, breaker == 'half-open'
end

function G.begin_probe(credential, pause, of_breaker, id_fence)
  if pause then
    pause.p = id_fence
    T.save_pause(credential, pause)
  end
  if of_breaker then R.set('brp', id_fence) end
end

-- Pacers as they are now; a budget that was idle for long comes back slowly.
function G.refill()
  if R.num('used') > 0 and now - R.num('used') > C.idle_ramp_ms then
    W.ramp_from(now)
    R.set('used', now)
  end
  W.refill()
end

-- ---------------------------------------------------------------- what a call charges

-- Amounts by unit for estimated tokens, by what was learned of a queue.
function G.charging(q)
  local input_ratio = (tonumber(J.stat(q, 'inr')) or 1000) / 1000
  local learned = C.learned_output and J.count(q, 'outn') >= 20 and tonumber(J.stat(q, 'outq')) or nil
  return function(estimated_input, output)
    local input = ceil(estimated_input * input_ratio)
    local reserved = learned and min(output, ceil(learned)) or output
    return {requests = 1, input_tokens = input, output_tokens = reserved,
      tokens = C.token_rule == 'sum' and input + output or max(input, output)}
  end
end

function G.too_large(amounts)
  for _, limit in ipairs(C.limits) do
    if L.too_large(limit, amounts[limit.unit]) then return limit end
  end
end

-- Wait ms (0 = now), the limit that binds, and the time between two such calls.
function G.wait_for(amounts)
  local wait, by, spacing = 0, nil, 0
  local f = W.factor(now)
  for _, limit in ipairs(C.limits) do
    local amount, pacer_name = amounts[limit.unit], 'p:' .. limit.name
    local rate = W.pace(limit)
    local level = min(R.num(pacer_name), max(rate * 1000, 2 * amount))
    if limit.paced then R.set(pacer_name, level) end
    local window = W.wait(limit, amount)
    local pacer = level < 0 and -level / (rate * f) or 0
    if f < 1 then pacer = min(pacer, 500) end
    local longest = max(window, pacer)
    if longest > wait then wait, by = longest, limit end
    spacing = max(spacing, amount / (rate * f))
  end
  return wait, by, spacing
end

-- Wait ms where another queue of the budget is behind and asks for its share; nil: it is this one's
-- turn.
local LEAST_SHARE_WAIT_MS = 50
function G.turn_of_another(q, waiter, amounts, spacing)
  if not V.ahead(q, V.cost(amounts)) then return nil end
  return G.tell(q, waiter, max(LEAST_SHARE_WAIT_MS, V.spacing(q, spacing)), spacing)
end

-- Charge a call of a queue and tenant now.
function G.pay(q, amounts, tenant)
  V.pay(q, V.cost(amounts))
  N.pay(q, tenant, 1)
  W.correct(now, amounts)
  for unit, amount in pairs(amounts) do J.bump_charged(q, unit, amount) end
  J.bump(q, 'grants', 1)
  R.set('used', now)
end
