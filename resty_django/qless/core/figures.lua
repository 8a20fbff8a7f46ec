-- Figures by queue and class: completions with their running times, pops with their waiting times, and failures.
--
-- `b:<unit><n>` is a hash of the n-th minute, hour or day since the epoch (units m, h, d): a bucket. Its fields are
-- <kind><bin>\n<queue>\n<class>, its values counts. Kinds: `r` a completion, with the bin of its running time; `w` a
-- pop, with the bin of its waiting time; `f` a failure, without a bin. Bin n holds the times from 2^(n/2) ms. From 1000
-- fields of a bucket on, further combinations of queue and class count under the queue and an empty class, as do names
-- that are longer than 300 bytes together; from 2000 fields on, under two empty names. A bucket that has ended is
-- packed: it has one field c\n<queue>\n<class> for each queue and class, with counts such as `r5=3 f=1`, and fields of
-- late events next to them. This keeps the number of fields low that a read for all names or for one returns.
--
-- A call writes to the bucket of its minute alone, with one HINCRBY for each field. The first call of a minute adds at
-- most two buckets that have ended to the bucket of their hour or day. `b:open` is a sorted set of the buckets that are
-- not added yet, by the time from which they may be added: after another minute, so that clocks may differ.
--
-- figures  unit n [queue] [class] [count]
--   Returns the figures by queue and class of the n-th minute, hour or day (`m`, `h`, `d`) since the epoch, including
--   those that are not added to it yet. An empty name stands for all queues or classes.
--   Reply: list of fields and values; a field may occur more than once, and a count in several fields: add them up.
--   With `count`, at most 60: a list of such lists, for the spans from n on
-- Cost  O(1) for an event, and O(k) for the k fields of two buckets once a minute; O(k) for `figures`

-- Record events of a queue in this minute, one for each class. `values`: their seconds; nil for failures.
local function record_figures(kind, queue, classes, values)
  local minute, counts, new_fields = floor(now / 60), {}, nil
  local key = prefix .. 'b:m' .. minute
  for n = 1, #classes do
    local event, seconds = kind, values and values[n]
    if seconds then
      event = kind .. (seconds > 0.001 and floor(2 * math.log(math.min(seconds, 1e9) * 1000) / math.log(2)) or 0)
    end
    local field = event .. '\n' .. queue .. '\n' .. classes[n]
    if #field > 300 then
      field = event .. (#queue > 290 and '\n\n' or '\n' .. queue .. '\n')
    end
    counts[field] = (counts[field] or 0) + 1
  end
  for field, count in pairs(counts) do
    if call('HINCRBY', key, field, count) == count then
      new_fields = new_fields or {}
      new_fields[#new_fields + 1] = field
    end
  end
  if not new_fields then
    return
  end

  -- Bound the fields of a bucket, after a new one was added.
  local function limit_fields(bucket, new_field, value)
    local size = call('HLEN', bucket)
    if size > 1000 then
      local event, of_queue = string.match(new_field, '^(%a%d*)(\n[^\n]*\n)')
      local shorter = event .. (size > 2000 and '\n\n' or of_queue)
      if new_field ~= shorter then
        call('HDEL', bucket, new_field)
        call('HINCRBY', bucket, shorter, value)
      end
    end
  end
  local is_known = call('HLEN', key) > #new_fields
  for _, field in ipairs(new_fields) do
    limit_fields(key, field, counts[field])
  end
  if is_known then
    return
  end

  -- Pack a bucket. `fields`: all of its fields and values.
  local function pack(bucket, fields)
    local counts, packed = {}, {}
    for at = 1, #fields, 2 do
      local event, names = string.match(fields[at], '^(%a%d*)(\n.*)$')
      if event then
        local count = event == 'c' and fields[at + 1] or event .. '=' .. fields[at + 1]
        counts[names] = (counts[names] and counts[names] .. ' ' or '') .. count
      end
    end
    for names, text in pairs(counts) do
      packed[#packed + 1], packed[#packed + 2] = 'c' .. names, text
    end
    call('DEL', bucket)
    for at = 1, #packed, 1000 do
      call('HSET', bucket, unpack(packed, at, math.min(at + 999, #packed)))
    end
  end

  -- This bucket is new: keep it until it is added, and add others that have ended.
  local life, buckets, open = 2764800, prefix .. 'b:', prefix .. 'b:open' -- 32 days
  call('EXPIRE', key, life)
  call('ZADD', open, (minute + 2) * 60, 'm' .. minute)
  for _, name in ipairs(call('ZRANGEBYSCORE', open, '-inf', now, 'LIMIT', 0, 2)) do
    local unit, n = string.sub(name, 1, 1), tonumber(string.sub(name, 2))
    local fields, targets = call('HGETALL', buckets .. name), {}
    if unit == 'm' then
      local hour = floor(n / 60)
      targets[1] = 'h' .. hour
      local due = hour * 3600 + 3780 -- after the last of its minutes
      if call('ZSCORE', open, targets[1]) or now < due then
        call('ZADD', open, due, targets[1])
      else -- the hour was added to its day without this minute
        targets[2] = 'd' .. floor(hour / 24)
      end
    else
      targets[1] = 'd' .. floor(n / 24)
    end
    for _, target in ipairs(targets) do
      if string.sub(target, 1, 1) == 'd' and call('EXISTS', buckets .. target) == 0 then
        local ended = buckets .. 'd' .. tonumber(string.sub(target, 2)) - 1
        pack(ended, call('HGETALL', ended))
        call('EXPIRE', ended, life)
      end
      for at = 1, #fields, 2 do
        local value = tonumber(fields[at + 1]) -- nil: packed, as it was added before
        if value and call('HINCRBY', buckets .. target, fields[at], value) == value then
          limit_fields(buckets .. target, fields[at], value)
        end
      end
      call('EXPIRE', buckets .. target, life)
    end
    pack(buckets .. name, fields)
    call('ZREM', open, name)
    call('EXPIRE', buckets .. name, unit == 'm' and 3900 or 180000) -- 65 minutes, 50 hours
  end
end

if command == 'figures' then
  local unit, n = need('Figures', 'unit', ARGV[3]), need('Figures', 'n', ARGV[4], 'number')
  local names, pattern = {ARGV[5] or '', ARGV[6] or ''}, '*'
  local length = ({m = 60, h = 3600, d = 86400})[unit]
  if not length then
    error('Figures(): Arg "unit" must be "m", "h" or "d": ' .. unit)
  end
  for _, name in ipairs(names) do
    pattern = pattern .. '\n' .. (name == '' and '*' or string.gsub(name, '[%[%]*?\\]', '\\%0'))
  end
  local count = ARGV[7] and math.max(1, math.min(60, floor(need('Figures', 'count', ARGV[7], 'number'))))
  local all, open = pattern == '*\n*\n*', call('ZRANGE', prefix .. 'b:open', 0, 9)
  local function read_bucket(number)
    local buckets, reply = {unit .. format('%.0f', number)}, nil
    for _, name in ipairs(open) do
      local seconds = string.sub(name, 1, 1) == 'm' and 60 or 3600
      if seconds < length and floor(tonumber(string.sub(name, 2)) * seconds / length) == number then
        buckets[#buckets + 1] = name
      end
    end
    for _, bucket in ipairs(buckets) do
      local cursor, key = '0', prefix .. 'b:' .. bucket
      repeat
        local part = all and {'0', call('HGETALL', key)} or call('HSCAN', key, cursor, 'MATCH', pattern, 'COUNT', 4000)
        cursor = part[1]
        for at = 1, reply and #part[2] or 0 do
          reply[#reply + 1] = part[2][at]
        end
        reply = reply or part[2]
      until cursor == '0'
    end
    return reply
  end
  if not count then
    return read_bucket(n)
  end
  local replies = {}
  for number = n, n + count - 1 do
    replies[#replies + 1] = read_bucket(number)
  end
  return replies
end
