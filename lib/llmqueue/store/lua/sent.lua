-- Decide for each claimed job whether its request may leave now. A repeat gets the same answer.
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV 1 credential, then pairs: job id, fence
-- Returns for each {ok 1/0, reason, wait ms}. Refused = released at no cost.
-- Complexity: O(jobs x limits).

local credential = ARGV[1]
local LATE_MS = 500
local answers = {}
local pause = C and T.pause_of(credential)
local breaker = C and T.breaker()
local marked = {}

local function draining(worker)
  if marked[worker] == nil then
    local mark = call('HGET', P .. 'w:' .. worker, 'd')
    marked[worker] = mark and tonumber(mark) > now or false
  end
  return marked[worker]
end

-- What is sent in a later sub-window (or day) than it was claimed in is charged anew, now, so that the
-- whole margin is left for its way; false where the claim is old and the windows are full.
local function recharge(job)
  local at, amounts = J.charged(job)
  local moved = false
  for _, limit in ipairs(C.limits) do
    moved = moved or W.moved(limit, at)
    if now - at > LATE_MS and not W.fits(limit, at, amounts[limit.unit]) then return false end
  end
  if not moved then return true end
  for _, limit in ipairs(C.limits) do
    W.add(limit, at, -amounts[limit.unit])
    W.add(limit, now, amounts[limit.unit])
  end
  job.y = J.charge_note(now, amounts)
  return true
end

local function decide(job, fence)
  if not C or not queue_cfg(job.q) then return 'unconfigured', 0 end
  local id_fence = job.id .. ' ' .. fence
  if draining(job.w) then return 'draining', 0 end
  if R.num('blk') > now then return 'blocked', R.num('blk') - now end
  if pause and pause.p ~= id_fence then return 'paused', max(0, pause.n - now) end
  if breaker ~= 'closed' and R.v.brp ~= id_fence then return 'breaker', R.num('bru') - now end
  -- A handler that has not acquired its call, or whose acquired one a failover lost.
  if not J.charged(job) then return 'late', 0 end
  if not recharge(job) then return 'late', 0 end
end

-- What a decision needs of a job; reading all of it takes twice as long.
local function glance(id)
  local got = call('HMGET', P .. 'j:' .. id, 's', 'q', 'x', 'w', 'y')
  return got[1] and {id = id, s = got[1], q = got[2], x = got[3], w = got[4], y = got[5]} or nil
end

for i = 2, #ARGV, 2 do
  local id, fence = ARGV[i], ARGV[i + 1]
  local job = glance(id)
  if not job or job.x ~= fence or (job.s ~= 'L' and job.s ~= 'S') then
    local why = job and job.s == 'C' and 'cancelled' or 'stale'
    answers[#answers + 1] = {0, why, 0}
  elseif job.s == 'S' then
    answers[#answers + 1] = {1, '', 0}
  else
    local reason, wait = decide(job, fence)
    if reason then
      if C then J.release(J.load(id)) end
      answers[#answers + 1] = {0, reason, ceil(max(0, wait))}
    else
      J.move(job, 'S', {e = now, y = job.y, X = ''})
      answers[#answers + 1] = {1, '', 0}
    end
  end
end
finish_script()
return answers
