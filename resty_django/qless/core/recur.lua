-- recur  queue jid klass data interval seconds offset [priority n=0] [tags list] [retries n=0] [backlog n=0]
--   Declares a recurring job, first due after `offset` seconds. An existing one keeps its count of spawned jobs.
--   Reply: jid
-- recur.get  jid
--   Reply: JSON {jid, klass, state, queue, priority, interval, retries, count, data, tags, backlog}; nil if it does not
--   exist
-- recur.update  jid [priority n] [interval s] [retries n] [data json] [klass k] [queue q] [backlog n]
--   Reply: 1
-- recur.tag  jid tag ...
--   Adds tags to future jobs.
--   Reply: JSON list of the tags
-- recur.untag  jid tag ...
--   Removes tags from future jobs.
--   Reply: JSON list of the tags
-- unrecur  jid
--   Deletes a recurring job, if it exists. Jobs already spawned stay.
--   Reply: 1
-- Cost  O(log n)
-- These commands take the jid out of `declared`, which marks the recurring jobs of tasks: a worker adds it again after
-- declaring one for a task, so manual changes are recognisable.
local RECUR, DECLARED = prefix .. 'r:', prefix .. 'declared'

local function positive(interval)
  return interval > 0 and interval or error('Recur(): Arg "interval" must be greater than 0')
end

if command == 'recur' then
  local title, queue, jid = 'Recur', need('Recur', 'queue', ARGV[3]), need('Recur', 'jid', ARGV[4])
  local klass, data, schedule = need(title, 'klass', ARGV[5]), ARGV[6], ARGV[7]
  settings()
  need(title, 'data', data, 'json')
  if need(title, 'schedule', schedule) ~= 'interval' then
    error('Recur(): schedule type "' .. schedule .. '" unknown')
  end
  local interval = positive(need(title, 'interval', ARGV[8], 'number'))
  local offset = need(title, 'offset', ARGV[9], 'number')
  if #ARGV % 2 == 0 then
    error('Odd number of additional args: ' .. table.concat(ARGV, ' ', 10))
  end
  local options = {priority = 0, retries = 0, backlog = 0, tags = {}}
  for n = 10, #ARGV, 2 do
    local name, value = ARGV[n], ARGV[n + 1]
    if options[name] then
      options[name] = need(title, name, value, name == 'tags' and 'list' or 'number')
    end
  end
  local key = RECUR .. jid
  local old = call('HMGET', key, 'queue', 'count')
  if old[1] and old[1] ~= queue then
    call('ZREM', QUEUE .. old[1] .. '-recur', jid)
  end
  call('HSET', key, 'jid', jid, 'klass', klass, 'data', data, 'priority', options.priority, 'tags', list(options.tags),
    'state', 'recur', 'queue', queue, 'type', 'interval', 'count', old[2] or 0, 'interval', interval,
    'retries', options.retries, 'backlog', options.backlog)
  call('ZREM', DECLARED, jid)
  call('ZADD', QUEUE .. queue .. '-recur', now + offset, jid)
  call('ZADD', prefix .. 'queues', 'NX', now, queue)
  call('PUBLISH', prefix .. 'wake:' .. queue, now + offset)
  return jid
end

if command == 'recur.get' then
  local jid = need('RecurringJob Get', 'jid', ARGV[3])
  local job = call('HMGET', RECUR .. jid, 'klass', 'state', 'queue', 'priority', 'interval', 'retries', 'count', 'data',
    'tags', 'backlog')
  if not job[1] then
    return
  end
  local tags = job[9]
  return '{"jid":' .. encode(jid) .. ',"klass":' .. encode(job[1]) .. ',"state":' .. encode(job[2])
    .. ',"queue":' .. encode(job[3]) .. ',"priority":' .. (tonumber(job[4]) or 0)
    .. ',"interval":' .. (tonumber(job[5]) or 0) .. ',"retries":' .. (tonumber(job[6]) or 0)
    .. ',"count":' .. (tonumber(job[7]) or 0) .. ',"data":' .. encode(job[8])
    .. ',"tags":' .. (tags and tags ~= '[]' and tags or '{}') .. ',"backlog":' .. (tonumber(job[10]) or 0) .. '}'
end

if command == 'recur.update' then
  local jid = need('Recur', 'jid', ARGV[3])
  local old = call('HMGET', RECUR .. jid, 'queue', 'interval')
  local queue = old[1]
  if not queue then
    error('Recur(): No recurring job ' .. jid)
  end
  settings()
  local fields, shift, target = {}, 0, queue
  for n = 4, #ARGV, 2 do
    local name, value = ARGV[n], ARGV[n + 1] or error('No value provided for ' .. ARGV[n])
    if name == 'priority' or name == 'retries' or name == 'backlog' then
      value = need('Recur', name, value, 'number')
    elseif name == 'interval' then
      value = positive(need('Recur', name, value, 'number'))
      shift = value - (tonumber(old[2]) or value)
    elseif name == 'data' then
      need('Recur', name, value, 'json')
    elseif name == 'queue' then
      target = value
    elseif name ~= 'klass' then
      error('Recur(): Unrecognized option "' .. name .. '"')
    end
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  if fields[1] then
    local due = tonumber(call('ZSCORE', QUEUE .. queue .. '-recur', jid)) or now
    call('HSET', RECUR .. jid, unpack(fields))
    call('ZREM', DECLARED, jid)
    call('ZREM', QUEUE .. queue .. '-recur', jid)
    call('ZADD', QUEUE .. target .. '-recur', due + shift, jid)
    if target ~= queue then
      call('ZADD', prefix .. 'queues', 'NX', now, target)
    end
    call('PUBLISH', prefix .. 'wake:' .. target, due + shift)
  end
  return 1
end

if command == 'recur.tag' or command == 'recur.untag' then
  local title = command == 'recur.tag' and 'Tag' or 'Untag'
  local jid = need(title, 'jid', ARGV[3])
  local tags = call('HGET', RECUR .. jid, 'tags')
  if not tags then
    error(title .. '(): Job ' .. jid .. ' does not exist')
  end
  tags = changed_tags(tags, 4, title == 'Tag')
  call('HSET', RECUR .. jid, 'tags', tags)
  return tags
end

if command == 'unrecur' then
  local jid = need('Unrecur', 'jid', ARGV[3])
  local queue = call('HGET', RECUR .. jid, 'queue')
  if queue then
    call('ZREM', QUEUE .. queue .. '-recur', jid)
    call('DEL', RECUR .. jid)
    call('ZREM', DECLARED, jid)
  end
  return 1
end
