-- Whose turn it is: tenants in turn within a band, features in turn within a tenant.
--
-- lanes:<queue>:<band> LIST of tenants, lanes:<queue>:<band>:<tenant> LIST of the tenant's features,
-- ready:<queue>:<band>:<lane> LIST of job ids. parked:<queue> ZSET "<band> <tenant>" -> when a tenant
-- whose own limit is used up may go on. A tenant with something in a ready list of a band is either
-- in the band's lanes or parked, never both.
--
-- A walk goes through one band for one claim. It reads the lanes once and writes them once, at its
-- end, so a turn of one job costs a handful of commands however many tenants there are.

function Lanes.park(q, band, tenant, at)
  call('ZADD', key('parked', q), int(at), band .. ' ' .. tenant)
end

-- A parked tenant gets its turns again; of one that is not parked nothing changes.
function Lanes.unpark(q, member)
  if call('ZREM', key('parked', q), member) == 0 then return end
  local band, tenant = string.match(member, '^(%d) (.*)$')
  call('RPUSH', key('lanes', q, band), tenant)
  J.wake(q)
end

-- List a job's lane, now that its ready list is no longer empty.
function Lanes.list(job, size)
  if size > 1 then return end
  local tenant = job.t or ''
  if call('RPUSH', key('lanes', job.q, job.b, tenant), job.f or '') == 1 then
    call('RPUSH', key('lanes', job.q, job.b), tenant)
  end
end

-- ---------------------------------------------------------------- a walk

-- `most`: jobs that the claim still wants; more tenants than that are not looked at.
function Lanes.walk(q, band, most)
  local name = key('lanes', q, band)
  local order = call('LRANGE', name, 0, most)
  return {q = q, band = band, name = name, most = most, order = order, loaded = #order, at = 1,
    whole = #order <= most, kept = {}, over = {}}
end

-- The head lane of the tenant whose turn it is, with the first entries of its ready list: of the
-- only lane as many as are wanted, else one. nil: the band has nothing left.
function Lanes.turn(walk)
  if walk.turn then return walk.turn end
  local tenant = walk.order[walk.at]
  if not tenant then
    if walk.whole then return nil end
    Lanes.leave(walk)
    local anew = Lanes.walk(walk.q, walk.band, walk.most)
    for name, value in pairs(anew) do walk[name] = value end
    return Lanes.turn(walk)
  end
  local features = key('lanes', walk.q, walk.band, tenant)
  local first = call('LRANGE', features, 0, 1)
  local single = walk.whole and #walk.order == walk.at and #first == 1
  local wanted = single and walk.most or 1
  local list = J.ready_list(walk.q, walk.band, tenant, first[1])
  -- One more than wanted tells whether the list goes on after them.
  local ids = call('LRANGE', list, 0, wanted)
  walk.turn = {tenant = tenant, features = features, several = #first > 1, list = list, ids = ids,
    wanted = min(wanted, #ids), single = single, taken = 0}
  return walk.turn
end

-- The tenant at the head is done for this round; `keep`: it has more and goes to the back.
local function advance(walk, keep)
  local tenant = walk.order[walk.at]
  walk.at = walk.at + 1
  if not keep then return end
  local behind = walk.whole and walk.order or walk.kept
  behind[#behind + 1] = tenant
end

-- Take what was used off the lists; `granted`: the lane had its turn, the next one follows.
function Lanes.close(walk, granted)
  local turn = walk.turn
  walk.turn = nil
  local emptied = turn.taken == #turn.ids
  if emptied and not turn.several then
    local over = walk.over
    over[#over + 1], over[#over + 2] = turn.list, turn.features
    return advance(walk, false)
  end
  if turn.taken > 0 then call('LPOP', turn.list, turn.taken) end
  if emptied then
    call('LPOP', turn.features)
  elseif granted and turn.several then
    call('LMOVE', turn.features, turn.features, 'LEFT', 'RIGHT')
  end
  if granted and not turn.single then advance(walk, true) end
end

-- The head entry of the turn is used up: granted, or no job any more.
function Lanes.take(walk, granted)
  local turn = walk.turn
  turn.taken = turn.taken + 1
  if turn.taken == turn.wanted then Lanes.close(walk, granted) end
end

-- The tenant at the head may not go on before `at`.
function Lanes.park_head(walk, at)
  if walk.turn.taken > 0 then Lanes.close(walk, false) end
  walk.turn = nil
  Lanes.park(walk.q, walk.band, walk.order[walk.at], at)
  advance(walk, false)
end

-- Write the lanes back in the order that the walk left them in.
function Lanes.leave(walk)
  if walk.turn then Lanes.close(walk, false) end
  local gone = min(walk.at - 1, walk.loaded)
  if gone > 0 then call('LPOP', walk.name, gone) end
  local behind = walk.kept
  for i = max(walk.at, walk.loaded + 1), #walk.order do behind[#behind + 1] = walk.order[i] end
  if #behind > 0 then call('RPUSH', walk.name, unpack(behind)) end
  if #walk.over > 0 then call('DEL', unpack(walk.over)) end
  walk.order, walk.loaded, walk.at, walk.kept, walk.over, walk.whole = {}, 0, 1, {}, {}, false
end

-- Put returned jobs of a tenant that may not go on from the front of its band to the head of its own
-- lane, oldest first: others of the band come before them now. `at`: when the tenant may go on.
function Lanes.send_home(jobs, at)
  for i = #jobs, 1, -1 do
    local job = jobs[i]
    local tenant = job.t or ''
    call('ZREM', key('front', job.q, job.b), job.id)
    if call('LPUSH', J.ready_list(job.q, job.b, tenant, job.f), job.id) == 1
      and call('RPUSH', key('lanes', job.q, job.b, tenant), job.f or '') == 1 then
      Lanes.park(job.q, job.b, tenant, at)
    end
  end
end
