-- All that is kept of one job.
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV 1 job id
-- Returns {fields and values, payload or result, attempt records, due ms, progress JSON}, each false
--   where there is none; nil where there is no such job or its retention is over.
-- Complexity: O(size of the job). Writes nothing.

local id = ARGV[1]
local fields = call('HGETALL', P .. 'j:' .. id)
if #fields == 0 then return nil end
local q
for i = 1, #fields, 2 do
  if fields[i] == 'q' then q = fields[i + 1] end
  if fields[i] == 'g' and fields[i + 1] == '2' then return nil end
end
return {fields, call('GET', P .. 'd:' .. id), call('LRANGE', P .. 't:' .. id, 0, -1),
  call('ZSCORE', key('delayed', q), id), call('GET', P .. 'p:' .. id)}
