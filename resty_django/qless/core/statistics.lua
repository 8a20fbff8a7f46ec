-- Statistics per day and queue.

-- Add values in seconds to the statistic `wait` or `run`: count, mean and sum of squared differences (Welford's
-- algorithm), and a histogram by seconds, minutes, hours and days; most values change one field of it.
local record_duration = (command == 'complete' or command == 'complete.many' or command == 'pop' or command == 'take')
    and function(kind, queue, values)
  local key, field, in_field = prefix .. 's:' .. kind .. ':' .. now - now % 86400 .. ':' .. queue, nil, 0
  local stored, old_total, total, mean, vk
  for n = 1, #values do
    local value = values[n]
    local seconds = floor(value)
    local name = seconds < 60 and 's' .. seconds or seconds < 3600 and 'm' .. floor(seconds / 60)
      or seconds < 86400 and 'h' .. floor(seconds / 3600) or 'd' .. floor(seconds / 86400)
    if not stored then
      field, stored = name, call('HMGET', key, 'total', 'mean', 'vk', name)
      old_total, mean, vk = tonumber(stored[1]) or 0, tonumber(stored[2]) or 0, tonumber(stored[3]) or 0
      total = old_total
    end
    if name == field then
      in_field = in_field + 1
    else
      call('HINCRBY', key, name, 1)
    end
    local difference = value - mean
    total = total + 1
    mean = mean + difference / total
    vk = vk + (value - mean) * difference
  end
  call('HSET', key, 'total', total, 'mean', mean, 'vk', vk, field, (tonumber(stored[4]) or 0) + in_field)
  if old_total == 0 or floor(old_total / 100) < floor(total / 100) then
    lazy_helpers().expire_stats(key, 'stats-history', 'histogram-history')
  end
end
