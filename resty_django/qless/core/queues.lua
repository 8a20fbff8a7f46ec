-- queues  [queue]
--   Reply: JSON {name, waiting, stalled, running, scheduled, depends, recurring, paused}; without a queue the list of
--   all, oldest first
-- page  queues|workers|tracked|failed [cursor] [count=100]
--   Returns one page of the reply of `queues`, `workers`, `track` or `failed`. Pass the cursor to the next call; ''
--   marks the end.
--   Reply: JSON {items, cursor}
-- length  queue
--   Reply: integer: number of running, waiting and scheduled jobs
-- pause  queue ...
--   Stops handing out jobs of the queues.
--   Reply: nil
-- unpause  queue ...
--   Resumes handing out jobs.
--   Reply: nil
-- queue.forget  queue ...
--   Removes the queues from the list. Their jobs stay.
--   Reply: nil
-- due  queue ...
--   Reply: the earliest time at which a pop of one of the queues may find a job, as text; nil: they are empty or paused
-- latency  queue ...
--   Returns the ages of the oldest runnable jobs in seconds, as text: the time since a job became runnable, or since
--   `pop` or `queues` moved it after its delay. Jobs with expired locks and due scheduled jobs count. Exact for integer
--   priorities; looks at the 20 highest ones.
--   Reply: list of ages; nil for a queue without runnable jobs
-- stats  queue date
--   Reply: JSON {retries, failed, failures, wait, run} of the day that contains the date. `wait` and `run` are {count,
--   mean, std, histogram}; a histogram has 148 numbers: jobs of 0 to 59 seconds, 1 to 59 minutes, 1 to 23 hours, 1 to 6
--   days
-- Cost  O(k log n) for k queues
if command == 'queues' or command == 'page' and ARGV[3] == 'queues' then
  local cursor, limit = page()
  settings()
  local paused, moved = call('EXISTS', prefix .. 'paused_queues') == 1, 0
  local function counts(queue)
    local key = QUEUE .. queue
    local places = {'-work', '-locks', '-scheduled', '-depends', '-recur'}
    local count, sum = {}, call('EXISTS', key .. '-work', key .. '-locks', key .. '-scheduled', key .. '-depends',
      key .. '-recur')
    for n = 1, 5 do
      count[n] = sum > 0 and call('ZCARD', key .. places[n]) or 0
      sum = count[n] > 0 and sum - 1 or sum
    end
    local stalled = count[2] > 0 and call('ZCOUNT', key .. '-locks', '-inf', now) or 0
    local due = count[3] > 0 and call('ZCOUNT', key .. '-scheduled', 0, now) or 0 -- these count as waiting
    if due > 0 and moved < STEP then
      moved = moved + lazy_helpers().enqueue_due(queue, STEP - moved)
    end
    return '{"name":' .. encode(queue) .. ',"waiting":' .. count[1] + due .. ',"stalled":' .. stalled
      .. ',"running":' .. count[2] - stalled .. ',"scheduled":' .. count[3] - due .. ',"depends":' .. count[4]
      .. ',"recurring":' .. count[5] .. ',"paused":'
      .. (paused and call('SISMEMBER', prefix .. 'paused_queues', queue) == 1 and 'true' or 'false') .. '}'
  end
  if command == 'queues' and ARGV[3] then
    return counts(ARGV[3])
  end
  local items = call('ZRANGE', prefix .. 'queues', cursor, cursor + limit - 1)
  for n, queue in ipairs(items) do
    items[n] = counts(queue)
  end
  return paged(joined(items), #items, cursor, limit)
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
      for _, suffix in ipairs({'-locks', '-scheduled', '-recur', '-paced'}) do
        local due = tonumber(call('ZRANGE', key .. suffix, 0, 0, 'WITHSCORES')[2])
        earliest = due and math.min(due, earliest or due) or earliest
      end
    end
  end
  return earliest and format('%.17g', earliest)
end

if command == 'latency' then
  need('Latency', 'queue', ARGV[3])
  settings()
  local ages = {}
  for n = 3, #ARGV do
    local key, oldest, bound = QUEUE .. ARGV[n], now + 1, '(inf' -- infinite: jobs that `timeout` put first
    for _ = 1, 20 do -- the score is priority - time / 1e10, so the oldest job of a priority has the greatest score
      local score = tonumber(call('ZREVRANGEBYSCORE', key .. '-work', bound, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2])
      if not score then
        break
      end
      local priority = math.ceil(score)
      local since = (priority - score) * 10000000000
      oldest = since > now - 1000000000 and math.min(oldest, since) or oldest -- else a fractional priority
      bound = format('%.17g', priority - 1)
    end
    for _, suffix in ipairs({'-scheduled', '-locks'}) do
      oldest = math.min(oldest, tonumber(call('ZRANGE', key .. suffix, 0, 0, 'WITHSCORES')[2]) or oldest)
    end
    ages[n - 2] = oldest <= now and format('%.17g', now - oldest)
      or call('EXISTS', key .. '-work') == 1 and '0' -- a clock is ahead
  end
  return ages
end

if command == 'stats' then
  local queue, date = need('Stats', 'queue', ARGV[3]), need('Stats', 'date', ARGV[4], 'number')
  local day = date - date % 86400
  -- histogram fields: seconds, minutes, hours and days, with their places in the list
  local units = {s = {1, 0, 59}, m = {60, 1, 59}, h = {119, 1, 23}, d = {142, 1, 6}}
  local function measured(kind)
    local fields, values, counts = call('HGETALL', prefix .. 's:' .. kind .. ':' .. day .. ':' .. queue), {}, {}
    if not fields[1] then
      return '{"count":0,"mean":0,"std":0,"histogram":[' .. string.rep('0,', 147) .. '0]}'
    end
    for n = 1, 148 do
      counts[n] = '0'
    end
    for n = 1, #fields, 2 do
      local name, value = fields[n], tonumber(fields[n + 1]) or 0
      local unit, at = units[string.sub(name, 1, 1)], tonumber(string.sub(name, 2))
      if unit and at and at >= unit[2] and at <= unit[3] then
        counts[unit[1] + at] = value
      else
        values[name] = value
      end
    end
    local total, mean, vk = values.total or 0, values.mean or 0, values.vk or 0
    return '{"count":' .. total .. ',"mean":' .. mean .. ',"std":' .. (total > 1 and math.sqrt(vk / (total - 1)) or 0)
      .. ',"histogram":[' .. table.concat(counts, ',') .. ']}'
  end
  local counts = call('HMGET', prefix .. 's:stats:' .. day .. ':' .. queue, 'retries', 'failed', 'failures')
  return '{"retries":' .. (counts[1] or 0) .. ',"failed":' .. (counts[2] or 0) .. ',"failures":' .. (counts[3] or 0)
    .. ',"wait":' .. measured('wait') .. ',"run":' .. measured('run') .. '}'
end
