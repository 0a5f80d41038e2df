-- Each `<name>.lua` becomes the body of a function of the library, or of a script.

local function finish_script()
  T.flush()
  W.flush()
  N.flush()
  Batches.flush()
  J.flush()
  J.flush_wakes()
  M.flush()
  R.flush()
end

local function perform(body, keys, args)
  begin(keys[1])
  if outage and R.num('used') > 0 then W.ramp_from(now) end
  return body(keys, args)
end

local function provide(name, flags, body)
  redis.register_function{function_name = LIBRARY .. '_' .. name, flags = flags,
    callback = function(keys, args) return perform(body, keys, args) end}
end
