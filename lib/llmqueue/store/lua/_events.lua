-- What listeners are told: a stream that is written only while somebody listens, so that jobs
-- nobody watches cost nothing more.
--
-- events STREAM: j job id or b batch id, s state letter, p progress JSON of a running job.
-- run: lsn somebody listens until then.
-- p:<id> STRING: progress JSON {at, fraction, message} that a job's handler reported last.

local Events = {}
local MOST_EVENTS = '10000'

local function tell_listeners(...)
  if R.num('lsn') > now then call('XADD', P .. 'events', 'MAXLEN', '~', MOST_EVENTS, '*', ...) end
end

-- A lease alone is no news: its call may yet be refused, and the job is ready as before.
function Events.moved(job, from, to)
  if to ~= 'L' and not (from == 'L' and to == 'R') then tell_listeners('j', job.id, 's', to) end
end

function Events.progressed(id, state, progress) tell_listeners('j', id, 's', state, 'p', progress) end

function Events.batch_ended(id, state) tell_listeners('b', id, 's', state) end
