-- What the provider's answers do to the whole budget: counts, breaker, blocks, credential pauses.
--
-- ans HASH: 16 slots of a twelfth of the breaker's window each: "<index> <all> <failed> <429> <unknown>".
-- run: brk 'c'|'o'|'h' breaker, bru open until, brp probe "id fence"; blk blocked until, bls since,
--   stk consecutive 429 rounds; half: rate halved until; np pauses, npc when they were
--   last gone through, pzs since, pza ms paused in all.
-- pause HASH: credential -> JSON {k kind, m message, s since, n next probe, p probe "id fence",
--   q queue whose job met it}.

local T = {}
local BUCKETS = 16

local function bucket_ms() return C.breaker.window_ms / 12 end

local counted
each_call(function() counted = {0, 0, 0, 0} end)
function T.count(all, failed, rate, unknown)
  counted[1], counted[2] = counted[1] + all, counted[2] + failed
  counted[3], counted[4] = counted[3] + rate, counted[4] + unknown
end
function T.flush()
  if counted[1] == 0 then return end
  local index = floor(now / bucket_ms())
  local slot = int(index % BUCKETS)
  local raw = call('HGET', P .. 'ans', slot)
  local was, a, f, r, u = string.match(raw or '', '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  if tonumber(was) ~= index then a, f, r, u = 0, 0, 0, 0 end
  call('HSET', P .. 'ans', slot, string.format('%.0f %.0f %.0f %.0f %.0f',
    index, a + counted[1], f + counted[2], r + counted[3], u + counted[4]))
  counted = {0, 0, 0, 0}
end

-- Answers of the last window: all, failed, 429s, unknown outcomes.
function T.answers()
  T.flush()
  local first = floor(now / bucket_ms()) - 12
  local all, failed, rate, unknown = 0, 0, 0, 0
  for _, raw in ipairs(call('HVALS', P .. 'ans')) do
    local at, a, f, r, u = string.match(raw, '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
    if tonumber(at) > first then
      all, failed, rate, unknown = all + a, failed + f, rate + r, unknown + u
    end
  end
  return all, failed, rate, unknown
end

-- Is the run that `probe` ("id fence") names still alive? Of a handler only while it calls, or was
-- charged for a call just now: its own code may run for hours, and nobody else could probe.
function T.alive(probe)
  local id, fence = string.match(probe or '', '^(%S+) (%S+)$')
  if not id then return false end
  local got = call('HMGET', P .. 'j:' .. id, 'x', 's', 'H', 'y')
  if got[1] ~= fence or got[2] ~= 'L' then return got[1] == fence and got[2] == 'S' end
  local charged_at = tonumber(string.match(got[4] or '', '^%d+') or nil)
  return not got[3] or (charged_at ~= nil and now - charged_at < C.lease_ms)
end

-- Breaker as it is now: 'closed', 'open' (wait ms) or 'half-open' (a probe may go).
function T.breaker()
  if (R.v.brk or 'c') == 'c' then return 'closed', 0 end
  local wait = R.num('bru') - now
  if wait > 0 then return 'open', wait end
  if T.alive(R.v.brp) then return 'open', 1000 end
  return 'half-open', 0
end

function T.open_breaker(ms)
  R.set('brk', 'o')
  R.set('bru', max(R.num('bru'), now + ms))
end

function T.judge(failing)
  if (R.v.brk or 'c') ~= 'c' or not failing then return end
  local all, failed = T.answers()
  if failed >= C.breaker.failures and failed > 0.8 * all then T.open_breaker(C.breaker.open_ms) end
end

-- The breaker's probe came back.
function T.probed(good)
  R.set('brp', '')
  if good then
    R.set('brk', 'c')
    R.set('bru', 0)
    T.flush()
    call('DEL', P .. 'ans')
    W.ramp_from(now)
  else
    R.set('bru', 0)
    T.open_breaker(C.breaker.probe_ms)
  end
end

-- A round of 429s came soon after the one before had been waited out, and calls succeeded between
-- the two: the provider allows less than we know. The limit that is fullest is the one that binds.
-- Returns whether a try for more was refused.
local function learn(last_free_at, free_at)
  local binding, fullest = nil, 0
  for _, limit in ipairs(C.limits) do
    local fill = limit.paced and W.sum(limit) / L.effective(limit) or 0
    if fill > fullest then binding, fullest = limit, fill end
  end
  if not binding then return false end
  if not L.learned(binding) and now - last_free_at > 2 * binding.keep_ms then return false end
  return L.learn(binding, W.accepted(binding), free_at)
end

-- A 429: nothing is sent for a while. `asked`: the provider's own wait, `soft`: derived from its
-- headers, `cap`: its time to a full budget (all ms, or nil). `charged`: the call's charge, where a
-- limit may be learned from it.
function T.block(schedule, asked, soft, cap, sent_at, charged)
  local worked, last_free_at = R.num('stk') == 0, R.num('blk')
  local new_round = sent_at > R.num('bls')
  if new_round then R.set('stk', R.num('stk') + 1) end
  local wait = asked
  if not wait then
    local delays = schedule.delays_ms
    wait = max(soft or 0, delays[min(max(1, R.num('stk')), #delays)] or 0)
    if cap and cap > 0 then wait = min(wait, cap) end
  end
  local tried = charged and new_round and worked and learn(last_free_at, now + wait)
  if charged and not new_round then L.unlearn(charged, sent_at) end
  if now + wait > R.num('blk') then
    R.set('blk', now + wait)
    -- After a try for more the limit is known: a ramp would only waste it. Those of the same round
    -- that come later follow the first.
    if tried or not new_round and R.num('ramp') < now then
      W.pace_from(now + wait)
    else
      W.ramp_from(now + wait)
    end
  end
  R.set('bls', now)
end

-- Halve the rate while more than half of the answers are 429s, unless a lower limit was learned.
function T.storm()
  local all, _, rate = T.answers()
  if all >= 5 and rate * 2 > all and not L.any_learned() then
    R.set('half', now + C.breaker.window_ms)
  elseif R.num('half') > 0 then
    R.set('half', 0)
  end
end

function T.pause_of(credential)
  if R.num('np') == 0 then return nil end
  local raw = call('HGET', P .. 'pause', credential)
  return raw and decode(raw) or nil
end

function T.save_pause(credential, pause)
  if call('HSET', P .. 'pause', credential, encode(pause)) == 1 then
    if R.num('np') == 0 then R.set('pzs', now) end
    R.set('np', R.num('np') + 1)
  end
end

function T.pause(credential, q, kind, message, next_ms)
  local known = T.pause_of(credential)
  T.save_pause(credential, {k = kind, m = string.sub(message, 1, 300), p = '',
    s = known and known.s or now, n = now + next_ms, q = q})
end

-- Lift the pauses of keys that no living worker uses, now that another one works: whoever replaced a
-- key need not say so.
function T.forget_unused_keys()
  if R.num('np') == 0 or now - R.num('npc') < 5000 then return end
  R.set('npc', now)
  local used, manned = {}, {}
  for _, w in ipairs(call('ZRANGEBYSCORE', P .. 'workers', now - 30000, '+inf')) do
    local beat = call('HMGET', P .. 'w:' .. w, 'p', 'q')
    used[beat[1] or ''] = true
    manned[beat[2] or ''] = true
  end
  -- Of a queue without workers nobody knows: its key may be the same, and still be refused.
  for _, credential in ipairs(call('HKEYS', P .. 'pause')) do
    if not used[credential] and manned[T.pause_of(credential).q or ''] then
      T.unpause(credential)
    end
  end
end

function T.unpause(credential)
  if call('HDEL', P .. 'pause', credential) == 0 then return end
  R.set('np', R.num('np') - 1)
  if R.num('np') == 0 then
    R.set('pza', R.num('pza') + now - R.num('pzs'))
    R.set('pzs', 0)
  end
  W.ramp_from(now)
end
