-- Charge the next call of a running handler, or say how long it has to wait.
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV 1 credential, 2 job id, 3 fence, 4 number of the call, 5 its journal name, 6 estimated input,
--   7 output bound, 8 worst-case nano-USD or '', 9 model
-- Returns {'granted', 0, '', '', input, output}; or {'wait', ms, reason, limit name}, {'too-large', 0,
--   '', limit name}, {'not-allowed', 0, '', allowed models}, {'draining'} (the worker gives the job back), {'lost'} (it holds it no longer).
-- A charge that is still open, of the claim or of a call that never left, is given back in the same
-- step; who has to wait keeps it.
-- Complexity: O(limits); while limited also O(window).

local credential, id, fence = ARGV[1], ARGV[2], ARGV[3]
local UNCONFIGURED_MS = 5000
local id_fence = id .. ' ' .. fence

local job = J.load(id)
if not job or job.x ~= fence or job.s ~= 'L' then return {'lost'} end
if not C or not queue_cfg(job.q) then return {'wait', UNCONFIGURED_MS, 'unconfigured', ''} end
local mark = call('HGET', P .. 'w:' .. (job.w or ''), 'd')
G.find_place(job.q, fence)
G.stop_waiting(job.q, fence)
if mark and tonumber(mark) > now then
  finish_script()
  return {'draining'}
end

-- The time for which a call waits says nothing of how long calls take.
local since, waiter = string.match(job.W or '', '^(%d+) (.+)$')
if waiter == fence then
  J.bump(job.q, 'busy', -max(0, now - tonumber(since)))
  call('HSET', P .. 'j:' .. id, 'W', '')
end

local function wait_on(ms, reason, limit)
  call('HSET', P .. 'j:' .. id, 'W', int(now) .. ' ' .. fence)
  finish_script()
  return {'wait', ceil(ms), reason, limit or ''}
end

local models = queue_cfg(job.q).models
if models then
  local allowed = false
  for _, model in ipairs(models) do allowed = allowed or model == ARGV[9] end
  if not allowed then
    finish_script()
    return {'not-allowed', 0, '', table.concat(models, ', ')}
  end
end

local wait, reason, pause, breaker_probe = G.closed(job.q, fence, credential, id_fence)
if reason then return wait_on(wait, reason) end
G.refill()

local tenant = job.t or ''
local closed_until = not J.charged(job) and N.rate_until(job.q, tenant)
if closed_until then return wait_on(closed_until - now, 'tenant') end
local amounts = G.charging(job.q)(tonumber(ARGV[6]), tonumber(ARGV[7]))
local large = G.too_large(amounts)
if large then
  finish_script()
  return {'too-large', 0, '', large.name}
end

local at, open_amounts = J.charged(job)
local returned = {}
if at then
  for unit, amount in pairs(open_amounts) do returned[unit] = -amount end
  W.correct(at, returned)
end
local due_in, by, spacing = G.wait_for(amounts)
if by then
  if at then W.correct(at, open_amounts) end
  return wait_on(G.tell(job.q, fence, due_in, spacing), by.unit, by.name)
end
-- The charge that is open was its turn.
local turn = not at and G.turn_of_another(job.q, fence, amounts, spacing)
if turn then return wait_on(turn, 'share') end
if at then
  for unit, amount in pairs(returned) do J.bump_charged(job.q, unit, amount) end
  J.bump(job.q, 'grants', -1)
  N.pay(job.q, tenant, -1)
  V.refund(job.q, open_amounts)
end
G.pay(job.q, amounts, tenant)
G.begin_probe(credential, pause, breaker_probe, id_fence)
call('HSET', P .. 'j:' .. id, 'y', J.charge_note(now, amounts), 'i', ARGV[6], 'o', ARGV[7], 'u', ARGV[8],
  'v', ARGV[9], 'O', ARGV[4] .. ' ' .. ARGV[5])
finish_script()
return {'granted', 0, '', '', amounts.input_tokens, amounts.output_tokens}
