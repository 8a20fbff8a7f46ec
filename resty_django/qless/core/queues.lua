-- queues    [queue]                Reply: JSON counts of the queue, or of all in the order they were first seen
-- length    queue                  Reply: how many jobs are running, waiting or scheduled
-- pause     queue ...              No job is handed out
-- unpause   queue ...
-- queue.forget  queue ...          The queue is not listed any more; its jobs stay
-- due       queue ...              Reply: the earliest time when a pop may find something; nil: nothing is there
-- stats     queue date             Reply: JSON statistics of the day that holds the date
-- throughput  queue                Reply: JSON {minutes, hours, days}: jobs completed in each, the present one last
-- Cost      O(k log n) for k queues
if command == 'queues' then
  settings()
  local function counts(queue)
    seldom().bring_due(queue, -1)
    local key = QUEUE .. queue
    local stalled = call('ZCOUNT', key .. '-locks', '-inf', now)
    return '{"name":' .. encode(queue) .. ',"waiting":' .. call('ZCARD', key .. '-work') .. ',"stalled":' .. stalled
      .. ',"running":' .. call('ZCARD', key .. '-locks') - stalled
      .. ',"scheduled":' .. call('ZCARD', key .. '-scheduled') .. ',"depends":' .. call('ZCARD', key .. '-depends')
      .. ',"recurring":' .. call('ZCARD', key .. '-recur')
      .. ',"paused":' .. (call('SISMEMBER', prefix .. 'paused_queues', queue) == 1 and 'true' or 'false') .. '}'
  end
  if ARGV[3] then
    return counts(ARGV[3])
  end
  local shown = call('ZRANGE', prefix .. 'queues', 0, -1)
  for n, queue in ipairs(shown) do
    shown[n] = counts(queue)
  end
  return shown[1] and '[' .. table.concat(shown, ',') .. ']' or '{}'
end

if command == 'length' then
  local key = QUEUE .. need('Length', 'queue', ARGV[3])
  return call('ZCARD', key .. '-locks') + call('ZCARD', key .. '-work') + call('ZCARD', key .. '-scheduled')
end

if command == 'pause' or command == 'unpause' or command == 'queue.forget' then
  need(command == 'pause' and 'Pause' or command == 'unpause' and 'Unpause' or 'Queue.Forget', 'queue', ARGV[3])
  for n = 3, #ARGV do
    if command == 'queue.forget' then
      call('ZREM', prefix .. 'queues', ARGV[n])
    else
      call(command == 'pause' and 'SADD' or 'SREM', prefix .. 'paused_queues', ARGV[n])
      if command == 'unpause' then
        call('PUBLISH', prefix .. 'wake:' .. ARGV[n], now)
      end
    end
  end
  return
end

if command == 'due' then
  need('Due', 'queue', ARGV[3])
  settings()
  local earliest
  for n = 3, #ARGV do
    local key = QUEUE .. ARGV[n]
    if call('SISMEMBER', prefix .. 'paused_queues', ARGV[n]) == 0 then
      if call('EXISTS', key .. '-work') == 1 then
        earliest = now
      end
      for _, place in ipairs({'-locks', '-scheduled', '-recur'}) do
        local due = tonumber(call('ZRANGE', key .. place, 0, 0, 'WITHSCORES')[2])
        earliest = due and math.min(due, earliest or due) or earliest
      end
    end
  end
  return earliest and format('%.17g', earliest)
end

if command == 'stats' then
  local queue, date = need('Stats', 'queue', ARGV[3]), need('Stats', 'date', ARGV[4], 'number')
  local day = date - date % 86400
  local fields = {'total', 'mean', 'vk'}
  for _, kind in ipairs({{'s', 0, 59}, {'m', 1, 59}, {'h', 1, 23}, {'d', 1, 6}}) do
    for n = kind[2], kind[3] do
      fields[#fields + 1] = kind[1] .. n
    end
  end
  local function measured(kind)
    local found = call('HMGET', prefix .. 's:' .. kind .. ':' .. day .. ':' .. queue, unpack(fields))
    for n = 1, #found do
      found[n] = tonumber(found[n]) or 0
    end
    local total, mean, vk = found[1], found[2], found[3]
    return '{"count":' .. total .. ',"mean":' .. mean .. ',"std":' .. (total > 1 and math.sqrt(vk / (total - 1)) or 0)
      .. ',"histogram":[' .. table.concat(found, ',', 4) .. ']}'
  end
  local counts = call('HMGET', prefix .. 's:stats:' .. day .. ':' .. queue, 'retries', 'failed', 'failures')
  return '{"retries":' .. (counts[1] or 0) .. ',"failed":' .. (counts[2] or 0) .. ',"failures":' .. (counts[3] or 0)
    .. ',"wait":' .. measured('wait') .. ',"run":' .. measured('run') .. '}'
end

if command == 'throughput' then
  local key = prefix .. 'h:' .. need('Throughput', 'queue', ARGV[3])
  settings()
  local found, sums = call('HGETALL', key), {}
  for n = 1, #found, 2 do
    local kind, at = string.match(found[n], '^(%a)(-?%d+)$')
    local number = tonumber(found[n + 1])
    at = tonumber(at)
    for _, step in ipairs({{'m', 'h', 60}, {'h', 'd', 24}, {'d'}}) do
      if kind == step[1] then
        sums[kind .. at] = (sums[kind .. at] or 0) + number
        if step[2] then
          kind, at = step[2], floor(at / step[3])
        end
      end
    end
  end
  local function last(kind, length, seconds)
    local counts, present = {}, floor(now / seconds)
    for n = 1, length do
      counts[n] = sums[kind .. present - length + n] or 0
    end
    return encode(counts)
  end
  return '{"minutes":' .. last('m', MINUTES, 60) .. ',"hours":' .. last('h', HOURS, 3600) .. ',"days":'
    .. last('d', DAYS, 86400) .. '}'
end
