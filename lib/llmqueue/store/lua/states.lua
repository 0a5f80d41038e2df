-- Where jobs and batches are, for those who wait for them.
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV ids of jobs and batches (these have a '-' after the budget's code)
-- Returns for each {state letter or '', progress JSON or ''}; of a batch that ended F or X, else R;
--   '' = there is no such one.
-- Complexity: O(ids). Writes nothing.

local answers = {}
for _, id in ipairs(ARGV) do
  if string.sub(id, 5, 5) == '-' then
    local batch = Batches.load(id)
    local state = ''
    if batch then state = batch.v.E and Batches.verdict(batch) or 'R' end
    answers[#answers + 1] = {state, ''}
  else
    local got = call('HMGET', P .. 'j:' .. id, 's', 'g')
    local state = got[1] and got[2] ~= '2' and got[1] or ''
    answers[#answers + 1] = {state, call('GET', P .. 'p:' .. id) or ''}
  end
end
return answers
