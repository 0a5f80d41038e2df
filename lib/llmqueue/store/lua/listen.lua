-- Have events written for a while.
--
-- KEYS[1] {q:<budget>}:cfg
-- ARGV 1 ms
-- Returns {id after which events are to come, 1 if they were written all along else 0}.
-- Complexity: O(1).

local ms = tonumber(ARGV[1])
local before = R.num('lsn') > now and 1 or 0
R.set('lsn', max(R.num('lsn'), now + ms))
local last = call('XADD', P .. 'events', 'MAXLEN', '~', MOST_EVENTS, '*', 'mark', '')
call('XDEL', P .. 'events', last)
call('PEXPIRE', P .. 'events', int(ms + 3600000))
R.flush()
return {last, before}
