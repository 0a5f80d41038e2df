-- What queues did, ever: counters that only grow, for those who watch them.
--
-- m:<queue> HASH:
--   models: names in the order of their numbers, '\31' between them; 0 are all after the first 20
--   c:<model>:<class> calls  t:<model>:<type> tokens (i input, c cached, w cache-written, o output,
--   r reasoning: each is in one of them)  u:<model> nano-USD  n:<model> billed calls without a price
--   r:<class> retries  f:<state> ended jobs  x:<severity> dead ones  granted  reviews
--   doubles: billed calls that may have been paid twice
--   d: call ms, w: wait ms: <upper bound>|more|sum
--   credit: JSON field -> what was counted too much: the next that comes is taken off it
-- lost:<fence> STRING: JSON of what a lost call was booked at, until it may not report any more.
-- What else is counted for ever is in st:<queue>: seq, reported, settled, reclaims, fenced.
-- A call is the list that codec.py makes: model, ms (-1 unknown), nano-USD (-1 unpriced), and as many
-- of its tokens, in the order of TYPES, as there are any.

local M = {}
local MOST_MODELS, MOST_NAME_BYTES = 20, 100
local TYPES = {'i', 'o', 'c', 'w', 'r'}
local FIRST_TOKENS = 4

local function fields_of(family, bounds)
  local found = {bounds = bounds, sum = family .. ':sum'}
  for i = 1, #bounds do found[i] = family .. ':' .. bounds[i] end
  found[#found + 1] = family .. ':more'
  return found
end
local CALL = fields_of('d', {500, 1000, 2500, 5000, 10000, 20000, 40000, 60000, 120000, 300000, 600000})
local WAIT = fields_of('w', {100, 1000, 5000, 15000, 60000, 300000, 600000, 1800000, 3600000, 14400000,
  86400000})

-- Names of a model's fields outlive a call: making them costs more than counting. Tokens are where a
-- call has them.
local of_model = {}
for number = 0, MOST_MODELS do
  local mine = {number = number, calls = {}, cost = 'u:' .. number, unpriced = 'n:' .. number}
  for i = 1, #TYPES do mine[FIRST_TOKENS - 1 + i] = 't:' .. number .. ':' .. TYPES[i] end
  of_model[number] = mine
end
local function calls_field(fields, class)
  local found = 'c:' .. fields.number .. ':' .. class
  fields.calls[class] = found
  return found
end

-- What is counted in this script: queue -> field -> by how much; and what is known of a queue's models.
local counted, books
each_call(function() counted, books = {}, {} end)

local function mine_of(q)
  local mine = counted[q]
  if not mine then mine = {}; counted[q] = mine end
  return mine
end

function M.count(q, name)
  local mine = mine_of(q)
  mine[name] = (mine[name] or 0) + 1
end

local function observe(mine, fields, value)
  local bounds, i = fields.bounds, 1
  while bounds[i] and value > bounds[i] do i = i + 1 end
  local bucket, sum = fields[i], fields.sum
  mine[bucket] = (mine[bucket] or 0) + 1
  mine[sum] = (mine[sum] or 0) + floor(value)
end

function M.waited(q, ms) observe(mine_of(q), WAIT, max(0, ms)) end

local function books_of(q)
  local known = books[q]
  if known then return known end
  local got = call('HMGET', key('m', q), 'models', 'credit')
  known = {models = got[1] or '', of = {}, most = 0,
    credit = (got[2] or '') ~= '' and decode(got[2]) or nil}
  for name in string.gmatch(known.models, '[^\31]+') do
    known.most = known.most + 1
    known.of[name] = of_model[known.most]
  end
  books[q] = known
  return known
end

-- Never a part of a character: what is no UTF-8 could not be read any more.
local function shortened(name)
  local most = MOST_NAME_BYTES
  while #name > most and floor(string.byte(name, most + 1) / 64) == 2 do most = most - 1 end
  return string.sub(name, 1, most)
end

-- Field names of a model that was not met in this script under this name.
local function new_model(known, model)
  local name = shortened((string.gsub(model, '\31', ' ')))
  if name == '' then name = 'unknown' end
  local found = known.of[name]
  if not found then
    found = of_model[known.most < MOST_MODELS and known.most + 1 or 0]
    if known.most < MOST_MODELS then
      known.most, known.grown = known.most + 1, true
      known.models = known.models == '' and name or known.models .. '\31' .. name
    end
    known.of[name] = found
  end
  known.of[model] = found
  return found
end

-- `by` -1 takes back what was counted of a call. This is run for each call, so it is short.
local function count_call(q, class, what, by)
  local known, mine = books_of(q), mine_of(q)
  local fields = known.of[what[1]] or new_model(known, what[1])
  local calls = fields.calls[class] or calls_field(fields, class)
  mine[calls] = (mine[calls] or 0) + by
  if what[2] >= 0 then observe(mine, CALL, what[2]) end
  local cost = what[3]
  if cost ~= 0 then
    local name = cost > 0 and fields.cost or fields.unpriced
    mine[name] = (mine[name] or 0) + (cost > 0 and cost or 1) * by
  end
  for i = FIRST_TOKENS, #what do
    local name, tokens = fields[i], what[i]
    if tokens > 0 then mine[name] = (mine[name] or 0) + tokens * by end
  end
  if by < 0 then known.credit = known.credit or {} end
end

function M.called(q, class, what) count_call(q, class, what, 1) end

-- Any tokens: the provider makes somebody pay for it.
function M.billed(what)
  for i = FIRST_TOKENS, #what do
    if what[i] > 0 then return true end
  end
  return what[3] > 0
end

function M.lost(q, fence, what, keep_ms)
  count_call(q, 'UNKNOWN', what, 1)
  call('SET', P .. 'lost:' .. fence, encode(what), 'PX', int(keep_ms))
end

-- A lost call reported after all: what it really was is counted beside this.
function M.found(q, fence)
  local raw = call('GET', P .. 'lost:' .. fence)
  if not raw then return end
  call('DEL', P .. 'lost:' .. fence)
  count_call(q, 'UNKNOWN', decode(raw), -1)
end

-- A field that would fall stays as it is, and what is missing is taken off what comes next.
local function use_credit(known, mine)
  local credit = known.credit
  for field, by in pairs(mine) do
    local owed = (credit[field] or 0) - by
    mine[field] = max(0, -owed)
    credit[field] = owed > 0 and owed or nil
  end
  return next(credit) and encode(credit) or ''
end

-- Two commands for all fields of a queue: one each would cost more than all the rest.
local function write(q, mine)
  local name, known = key('m', q), books[q]
  local args, names = {}, {}
  if known and known.credit then args[1], args[2] = 'credit', use_credit(known, mine) end
  if known and known.grown then args[#args + 1], args[#args + 2] = 'models', known.models end
  for field in pairs(mine) do names[#names + 1] = field end
  local n = #args
  for i, value in ipairs(call('HMGET', name, unpack(names))) do
    args[n + 1], args[n + 2] = names[i], (tonumber(value) or 0) + mine[names[i]]
    n = n + 2
  end
  call('HSET', name, unpack(args))
end

function M.flush()
  for q, mine in pairs(counted) do write(q, mine) end
  counted, books = {}, {}
end

-- Flat fields and values.
function M.read(q) return call('HGETALL', key('m', q)) end
