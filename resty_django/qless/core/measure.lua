-- Statistics of a day and queue.

-- Add values, in seconds, to the statistic `wait` or `run`: their number, mean and sum of squared differences
-- (Welford's streaming formula), and a histogram of seconds, minutes, hours and days, mostly in one field of it.
local measure = (command == 'complete' or command == 'pop' or command == 'take') and function(kind, queue, values)
  local key, field, more = prefix .. 's:' .. kind .. ':' .. now - now % 86400 .. ':' .. queue, nil, 0
  local found, before, total, mean, vk
  for n = 1, #values do
    local value = values[n]
    local whole = floor(value)
    local name = whole < 60 and 's' .. whole or whole < 3600 and 'm' .. floor(whole / 60)
      or whole < 86400 and 'h' .. floor(whole / 3600) or 'd' .. floor(whole / 86400)
    if not found then
      field, found = name, call('HMGET', key, 'total', 'mean', 'vk', name)
      before, mean, vk = tonumber(found[1]) or 0, tonumber(found[2]) or 0, tonumber(found[3]) or 0
      total = before
    end
    if name == field then
      more = more + 1
    else
      call('HINCRBY', key, name, 1)
    end
    local difference = value - mean
    total = total + 1
    mean = mean + difference / total
    vk = vk + (value - mean) * difference
  end
  call('HSET', key, 'total', total, 'mean', mean, 'vk', vk, field, (tonumber(found[4]) or 0) + more)
  if before == 0 or floor(before / 100) < floor(total / 100) then
    seldom().expire_stats(key, 'stats-history', 'histogram-history')
  end
end
