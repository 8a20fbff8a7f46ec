-- Renders a job as JSON. Values that already are JSON pass through unchanged.

-- Indexes into the result of `read`.
local KLASS, REMAINING, DATA, TIME, STATE, WORKER, EXPIRES, TRACKED = 1, 5, 6, 12, 13, 14, 15, 16

-- Return the fields of a job, false for missing ones. STATE, WORKER and EXPIRES only with `with_state`, since a pop
-- changes them. The caller adds TRACKED.
local function read(jid, with_state)
  local key = JOB .. jid
  if with_state then
    return call('HMGET', key, 'klass', 'queue', 'priority', 'retries', 'remaining', 'data', 'tags', 'failure',
      'spawned_from_jid', 'txid', 'request_id', 'time', 'state', 'worker', 'expires')
  end
  return call('HMGET', key, 'klass', 'queue', 'priority', 'retries', 'remaining', 'data', 'tags', 'failure',
    'spawned_from_jid', 'txid', 'request_id', 'time')
end

-- Return the JSON of a job. `tied`: it may have dependencies or dependents; `last`: its last history entry, if known.
local function job_json(jid, job, tied, last)
  local key = JOB .. jid
  local history = call('LRANGE', key .. '-history', 0, -1)
  if not history[1] then
    append_history(jid)
    history = call('LRANGE', key .. '-history', 0, -1)
  end
  local length = #history
  if last then
    history[length], length = last, length - 1
  end
  for n = 1, length do
    local entry = history[n]
    -- [when, what, {extra}] as an object; decoded only if a name could occur twice
    local at, what, details = string.match(entry, '^%[(%d+),("[^"\\]*")(.*)%]$')
    if details == '' then
      history[n] = '{"when":' .. at .. ',"what":' .. what .. '}'
    elseif at and find(details, '^,{..*}$') and not find(details, '"wh', 1, true) then
      history[n] = '{' .. string.sub(details, 3, -2) .. ',"when":' .. at .. ',"what":' .. what .. '}'
    else
      local parts = cjson.decode(entry)
      local object = type(parts[3]) == 'table' and parts[3] or {}
      object.when, object.what = floor(tonumber(parts[1]) or 0), parts[2]
      history[n] = encode(object)
    end
  end
  local before, after = '{}', '{}'
  if tied then
    local dependencies, dependents = call('SMEMBERS', key .. '-dependencies'), call('SMEMBERS', key .. '-dependents')
    before, after = dependencies[1] and encode(dependencies) or '{}', dependents[1] and encode(dependents) or '{}'
  end
  local klass, of_queue, priority, retries, remaining, data, tags, failure, parent, txid, request_id, _, state, worker,
    expires, tracked = unpack(job, 1, TRACKED) -- as locals: each upvalue would cost every call of the core
  return '{"jid":' .. encode(jid) .. ',"klass":' .. encode(klass) .. ',"state":"' .. state
    .. '","queue":' .. encode(of_queue) .. ',"worker":' .. encode(worker or '')
    .. ',"priority":' .. (tonumber(priority) or 0) .. ',"retries":' .. (tonumber(retries) or 0)
    .. ',"remaining":' .. floor(tonumber(remaining) or 0) .. ',"expires":' .. (tonumber(expires) or 0)
    .. ',"data":' .. encode(data) .. ',"tags":' .. (tags and tags ~= '[]' and tags or '{}')
    .. ',"failure":' .. (failure or '{}') .. ',"spawned_from_jid":' .. (parent and encode(parent) or 'false')
    .. ',"tracked":' .. (tracked and 'true' or 'false')
    .. ',"dependents":' .. after .. ',"dependencies":' .. before
    .. ',"history":' .. (history[1] and '[' .. table.concat(history, ',') .. ']' or '{}')
    .. (txid and ',"txid":' .. encode(txid) or '') .. (request_id and ',"request_id":' .. encode(request_id) or '')
    .. '}'
end
