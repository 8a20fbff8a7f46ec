-- workers   [worker]               Reply: JSON list {name, jobs, stalled}, latest sign of life first; of one worker
--                                  {jobs: [jid], stalled: [jid]}, latest expiry first
-- worker.deregister  worker ...    The worker is not listed any more; its jobs stay
-- config.get   [option]            Reply: JSON of all with a default or a value; or the value or default of one, or nil
-- config.set   option value
-- config.unset option
-- Cost      O(k log n) for k workers
if command == 'workers' then
  local worker, age = ARGV[3], settings('max-worker-age')
  local workers, oldest = prefix .. 'workers', now - (tonumber(age) or 86400)
  for _, name in ipairs(call('ZRANGEBYSCORE', workers, '-inf', oldest)) do
    call('DEL', prefix .. 'w:' .. name .. ':jobs')
    call('ZREM', workers, name)
  end
  if worker then
    local key = prefix .. 'w:' .. worker .. ':jobs'
    return '{"jobs":' .. list(call('ZREVRANGEBYSCORE', key, now + 8640000, now)) .. ',"stalled":'
      .. list(call('ZREVRANGEBYSCORE', key, now, 0)) .. '}'
  end
  local shown = call('ZREVRANGE', workers, 0, -1)
  for n, name in ipairs(shown) do
    local key = prefix .. 'w:' .. name .. ':jobs'
    shown[n] = '{"name":' .. encode(name) .. ',"jobs":' .. call('ZCOUNT', key, now, now + 8640000) .. ',"stalled":'
      .. call('ZCOUNT', key, 0, now) .. '}'
  end
  return shown[1] and '[' .. table.concat(shown, ',') .. ']' or '{}'
end

if command == 'worker.deregister' then
  need('Worker.Deregister', 'worker', ARGV[3])
  for n = 3, #ARGV do
    call('ZREM', prefix .. 'workers', ARGV[n])
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
  local found = call('HGETALL', prefix .. 'config')
  for n = 1, #found, 2 do
    defaults[found[n]] = found[n + 1]
  end
  return encode(defaults)
end

if command == 'config.set' then
  local option, value = need('Config.Set', 'option', ARGV[3]), need('Config.Set', 'value', ARGV[4])
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
