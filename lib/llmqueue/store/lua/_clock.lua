-- Shared by all functions: keys, configuration, the budget's runtime facts, the logical clock.
--
-- KEYS[1] is always `{q:<budget>}:cfg`; all other keys derive from its prefix, so one slot holds all.
-- Times are integer milliseconds of the logical clock: the server's TIME plus a stored offset that
-- absorbs steps backwards (limits neither freeze nor refill twice). `back` is their sum: without it
-- the logical clock is the server's.

-- A library is loaded without access to these: begin() sets them.
local call, decode, encode, floor, max, min, ceil, P

local function key(...) return P .. table.concat({...}, ':') end
local function int(n) return string.format('%d', floor(n + 0.5)) end

-- Put a hash's fields `into` a table; returns it, and whether there are any.
local function read_hash(name, into)
  local flat = call('HGETALL', name)
  for i = 1, #flat, 2 do into[flat[i]] = flat[i + 1] end
  return into, #flat > 0
end

-- The table kept under `name` in a table of tables.
local function kept_in(tables, name)
  local found = tables[name]
  if not found then found = {}; tables[name] = found end
  return found
end

-- What a part remembers within one call is set anew before the next one.
local fresh_parts = {}
local function each_call(forget)
  fresh_parts[#fresh_parts + 1] = forget
  forget()
end

-- Runtime facts of the budget (`run` hash), read whole once, written once by R.flush().
local R = {}
each_call(function() R.v, R.dirty = {}, {} end)
function R.num(name) return tonumber(R.v[name]) or 0 end
function R.set(name, value)
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

-- Decoded configuration outlives a call: parsing it costs more than most scripts. Read only.
local MOST_DECODED = 200
local decoded, decoded_count = {}, 0
local function config(name)
  local raw = call('HGET', name, 'json')
  if not raw then return nil end
  local known = decoded[name]
  if known and known.raw == raw then return known.value end
  if not known then
    if decoded_count >= MOST_DECODED then decoded, decoded_count = {}, 0 end
    decoded_count = decoded_count + 1
  end
  decoded[name] = {raw = raw, value = decode(raw)}
  return decoded[name].value
end

-- Budget configuration `C` (nil: unconfigured) and, loaded on demand, that of a queue.
local C
local queue_cfgs
each_call(function() queue_cfgs = {} end)
local function queue_cfg(q)
  local cfg = queue_cfgs[q]
  if cfg == nil then
    cfg = config(key('cfg', q)) or false
    queue_cfgs[q] = cfg
  end
  return cfg
end

local now, outage
local function read_clock()
  local t = call('TIME')
  now = floor(tonumber(t[1]) * 1000 + tonumber(t[2]) / 1000) + R.num('off')
  local last = R.num('last')
  if now < last then
    R.set('off', R.num('off') + last - now)
    R.set('back', R.num('back') + last - now)
    now = last
  end
  outage = false
  if C and last > 0 and now - last > C.lease_ms / 2 then
    -- Nobody could reach us for a while: leases deserve one more lease, and calls come back slowly.
    R.set('hold', now + C.lease_ms)
    outage = true
  end
  if now > last then R.set('last', now) end
end

local function begin(config_key)
  call, decode, encode = redis.call, cjson.decode, cjson.encode
  floor, max, min, ceil = math.floor, math.max, math.min, math.ceil
  P = string.sub(config_key, 1, -4)
  for _, forget in ipairs(fresh_parts) do forget() end
  -- While a cluster moves this slot a key that is not here may be elsewhere already, and the server
  -- refuses to look: one that never exists makes it do so now, and not in the middle of the writes.
  call('EXISTS', P .. '-')
  read_hash(P .. 'run', R.v)
  C = config(config_key)
  read_clock()
end

-- Deadlines stand still while a credential is paused: they are kept in this clock.
local function active_now()
  local since = R.num('pzs')
  return now - R.num('pza') - (since > 0 and now - since or 0)
end
