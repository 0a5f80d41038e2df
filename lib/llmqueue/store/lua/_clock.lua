-- Shared by all scripts: keys, configuration, the budget's runtime facts, the logical clock.
--
-- KEYS[1] is always `{q:<budget>}:cfg`; all other keys derive from its prefix, so one slot holds all.
-- Times are integer milliseconds of the logical clock: the server's TIME plus a stored offset that
-- absorbs steps backwards (limits neither freeze nor refill twice).

local call = redis.call
local P = string.sub(KEYS[1], 1, -4)
local decode, encode = cjson.decode, cjson.encode
local floor, max, min, ceil = math.floor, math.max, math.min, math.ceil

local function key(...) return P .. table.concat({...}, ':') end
local function int(n) return string.format('%.0f', n) end

-- Runtime facts of the budget (`run` hash), read whole once, written once by R.flush().
local R = {v = {}, dirty = {}}
do
  local flat = call('HGETALL', P .. 'run')
  for i = 1, #flat, 2 do R.v[flat[i]] = flat[i + 1] end
end
function R.num(name) return tonumber(R.v[name]) or 0 end
function R.set(name, value)
  if type(value) == 'number' then
    value = value % 1 == 0 and int(value) or string.format('%.6f', value)
  end
  R.v[name] = value
  R.dirty[name] = true
end
function R.flush()
  local args = {}
  for name in pairs(R.dirty) do
    args[#args + 1] = name
    args[#args + 1] = R.v[name]
  end
  if #args > 0 then call('HSET', P .. 'run', unpack(args)) end
  R.dirty = {}
end

-- Budget configuration `C` (nil: unconfigured) and, loaded on demand, that of a queue.
local C = call('HGET', KEYS[1], 'json')
C = C and decode(C) or nil
local queue_cfgs = {}
local function queue_cfg(q)
  local cfg = queue_cfgs[q]
  if cfg == nil then
    local raw = call('HGET', key('cfg', q), 'json')
    cfg = raw and decode(raw) or false
    queue_cfgs[q] = cfg
  end
  return cfg
end

local now
local outage = false
do
  local t = call('TIME')
  now = floor(tonumber(t[1]) * 1000 + tonumber(t[2]) / 1000) + R.num('off')
  local last = R.num('last')
  if now < last then
    R.set('off', R.num('off') + last - now)
    now = last
  end
  if C and last > 0 and now - last > C.lease_ms / 2 then
    -- Nobody could reach us for a while: leases deserve one more lease, and calls come back slowly.
    R.set('hold', now + C.lease_ms)
    outage = true
  end
  if now - last > 0 then R.set('last', now) end
end

-- Deadlines stand still while a credential is paused: they are kept in this clock.
local function active_now()
  local since = R.num('pzs')
  return now - R.num('pza') - (since > 0 and now - since or 0)
end
