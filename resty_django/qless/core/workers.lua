-- workers
--   Reply: JSON list of {name, jobs, stalled}, latest activity first
-- workers  worker
--   Reply: JSON {jobs: [jid], stalled: [jid]}, latest expiry first
-- tidy  worker
--   Continues deferred work.
--   Reply: integer: 1: work remains, call it again; 0: none remains, or another worker has called it within the last
--   second
-- worker.deregister  worker ...
--   Removes workers from the list, with their reports and stacks. Their jobs stay.
--   Reply: nil
-- config.get
--   Reply: JSON of all options with a default or a value
-- config.get  option
--   Reply: its value as text; else its default, a number as integer; else nil
-- config.set  option value
--   Reply: nil
-- config.unset  option
--   Reply: nil
-- Cost  O(k log n) for k workers
if command == 'workers' or command == 'page' and ARGV[3] == 'workers' then
  local cursor, limit = page()
  local worker, age = command == 'workers' and ARGV[3], settings('max-worker-age')
  local workers, oldest = prefix .. 'workers', now - (tonumber(age) or 86400)
  later().forget(oldest, STEP)
  if worker then
    local key = prefix .. 'w:' .. worker .. ':jobs'
    return '{"jobs":' .. list(call('ZREVRANGEBYSCORE', key, now + 8640000, now)) .. ',"stalled":'
      .. list(call('ZREVRANGEBYSCORE', key, now, 0)) .. '}'
  end
  local total = call('ZCOUNT', workers, '(' .. format('%.17g', oldest), '+inf') -- expired entries may remain
  local last = math.min(total, cursor + limit)
  local items = last > cursor and call('ZREVRANGE', workers, cursor, last - 1) or {}
  for n, name in ipairs(items) do
    local key = prefix .. 'w:' .. name .. ':jobs'
    items[n] = '{"name":' .. encode(name) .. ',"jobs":' .. call('ZCOUNT', key, now, now + 8640000) .. ',"stalled":'
      .. call('ZCOUNT', key, 0, now) .. '}'
  end
  return paged(joined(items), #items, cursor, limit)
end

if command == 'tidy' then
  local life, kept, age = settings('jobs-history', 'jobs-history-count', 'max-worker-age')
  local worker, key = need('Tidy', 'worker', ARGV[3]), prefix .. 'tidying'
  if not call('SET', key, worker, 'NX', 'PX', 1000) and call('GET', key) ~= worker then
    return 0
  end
  local left = call('EXISTS', prefix .. 'outcomes', prefix .. 'groups') > 0 and outcomes().sweep(STEP)
  left = later().step(STEP) or left
  left = later().expire(tonumber(life) or 604800, tonumber(kept) or 50000, STEP) or left
  left = later().forget(now - (tonumber(age) or 86400), STEP) or left
  if left then
    call('SET', key, worker, 'PX', 1000)
    return 1
  end
  call('DEL', key)
  return 0
end

if command == 'worker.deregister' then
  need('Worker.Deregister', 'worker', ARGV[3])
  for n = 3, #ARGV do
    call('ZREM', prefix .. 'workers', ARGV[n])
    call('ZREM', prefix .. 'alive', ARGV[n])
    call('HDEL', prefix .. 'alive-queues', ARGV[n])
    call('DEL', prefix .. 'report:' .. ARGV[n], prefix .. 'stacks:' .. ARGV[n])
  end
  return
end

if command == 'config.get' then
  local defaults = {application = 'qless', heartbeat = 60, ['grace-period'] = 10, ['jobs-history'] = 604800,
    ['jobs-history-count'] = 50000, ['stats-history'] = 30, ['histogram-history'] = 7}
  local option = ARGV[3]
  if option then
    return call('HGET', prefix .. 'config', option) or defaults[option]
  end
  local options = call('HGETALL', prefix .. 'config')
  for n = 1, #options, 2 do
    defaults[options[n]] = options[n + 1]
  end
  return encode(defaults)
end

if command == 'config.set' then
  local option, value = need('Config.Set', 'option', ARGV[3]), need('Config.Set', 'value', ARGV[4])
  if option == 'fixes' and value ~= 'none' and value ~= 'shared' and value ~= 'all' then
    error('Config.Set(): Arg "value" of the option "fixes" must be "none", "shared" or "all": ' .. value)
  end
  call('HSET', prefix .. 'config', option, value)
  call('PUBLISH', prefix .. 'log', '{"event":"config_set","option":' .. encode(option) .. ',"value":' .. encode(value)
    .. '}')
  return
end

if command == 'config.unset' then
  local option = need('Config.Unset', 'option', ARGV[3])
  call('HDEL', prefix .. 'config', option)
  call('PUBLISH', prefix .. 'log', '{"event":"config_unset","option":' .. encode(option) .. '}')
  return
end
