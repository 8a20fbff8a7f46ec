-- failed
--   Reply: JSON {group: count}
-- failed  group [start=0] [limit=25]
--   Reply: JSON {total, jobs: [jid]}, newest first
-- oldest  failed group [skip=0] [count=100]
--   Returns at most 1000 jobs, oldest first.
--   Reply: list of jid, queue and time of the failure in turn; the time is '' for a job that has not failed in the
--   group
-- oldest  complete '' [skip=0] [count=100]
--   Reply: the same for complete jobs, with the queue of their last run and the time of the completion
-- failures.latest  count group ...
--   Describes at most 100 groups by their latest `count` jobs, at most 25.
--   Reply: JSON list, for each group: {total, times, classes, message, first}: when these jobs failed, newest first;
--   their classes; the last 2000 bytes of the newest job's message; when the oldest job of the group failed
-- failures.between  start end group ...
--   Counts the jobs of at most 100 groups that failed from `start` until before `end`.
--   Reply: JSON list, for each group: [count, first, last]: the number, and when the first and the last one failed, or
--   0
-- unfail  queue group [count=25]
--   Moves the oldest jobs of a group to a queue: 100 now, the others by later calls.
--   Reply: integer: number of jobs
-- pace  group rate
--   Returns the jobs of a group to their queues, oldest first, `rate` of them per second. The rate 0 stops this.
--   Reply: integer: number of jobs that will return; with the rate 0, of those that stay failed
-- Cost  O(k) for k groups or jobs; O(k log n) for `failures.between`
if command == 'page' and ARGV[3] == 'failed' then
  local cursor, limit = page()
  local scanned = call('SSCAN', prefix .. 'failures', format('%.0f', cursor), 'COUNT', limit)
  local counts = {}
  for n, name in ipairs(scanned[2]) do
    counts[n] = encode(name) .. ':' .. call('LLEN', prefix .. 'f:' .. name)
  end
  return '{"items":{' .. table.concat(counts, ',') .. '},"cursor":"' .. (scanned[1] == '0' and '' or scanned[1]) .. '"}'
end

if command == 'failed' then
  local group = ARGV[3]
  if group then
    local start = need('Failed', 'start', ARGV[4] or 0, 'number')
    local limit = need('Failed', 'limit', ARGV[5] or 25, 'number')
    local key = prefix .. 'f:' .. group
    return '{"total":' .. call('LLEN', key) .. ',"jobs":' .. list(call('LRANGE', key, start, start + limit - 1)) .. '}'
  end
  local counts = {}
  for _, name in ipairs(call('SMEMBERS', prefix .. 'failures')) do
    counts[name] = call('LLEN', prefix .. 'f:' .. name)
  end
  return encode(counts)
end

if command == 'oldest' then
  local complete, group = need('Oldest', 'state', ARGV[3]) == 'complete', need('Oldest', 'group', ARGV[4])
  local skip = need('Oldest', 'skip', ARGV[5] or 0, 'number')
  local limit, reply = math.min(10 * STEP, need('Oldest', 'count', ARGV[6] or STEP, 'number')), {}
  local jids = complete and call('ZRANGE', prefix .. 'completed', skip, skip + limit - 1)
    or call('LRANGE', prefix .. 'f:' .. group, -skip - limit, -skip - 1)
  for n = 1, #jids do
    local jid = jids[complete and n or #jids + 1 - n]
    local actual, at, queue = failure_of(jid)
    if complete then
      local valid, put = pcall(cjson.decode, select(2, last_put(jid, 0)) or '')
      queue = valid and type(put[3].q) == 'string' and put[3].q -- the job has none; others may write any history
      actual, at = group, call('ZSCORE', prefix .. 'completed', jid)
    end
    reply[#reply + 1], reply[#reply + 2] = jid, queue or ''
    reply[#reply + 1] = actual == group and at and format('%.17g', at) or ''
  end
  return reply
end

if command == 'failures.latest' or command == 'failures.between' then
  local latest = command == 'failures.latest'
  local title = latest and 'Failures.Latest' or 'Failures.Between'
  local start = need(title, latest and 'count' or 'start', ARGV[3], 'number')
  local stop = not latest and need(title, 'end', ARGV[4], 'number')
  local first_group = latest and 4 or 5
  if #ARGV - first_group >= STEP then
    error(title .. '(): Arg "groups" longer than 100: ' .. #ARGV - first_group + 1)
  end

  -- Return the failures of `count` jobs of a group from an index on, or their classes; false for what is missing.
  local function read_jobs(key, first, count, field)
    -- Redis 6.2 reads the whole list to sort it
    local values = redis.REDIS_VERSION_NUM and redis.pcall('SORT', key, 'BY', 'nosort', 'LIMIT', first, count,
      'GET', JOB .. '*->' .. field)
    if values and not values.err then
      return values
    end
    values = {} -- on clusters, and if access is restricted to some keys, SORT must not read other keys
    for n, jid in ipairs(call('LRANGE', key, first, first + count - 1)) do
      values[n] = call('HGET', JOB .. jid, field)
    end
    return values
  end

  local failed_at = later().failed_at

  local function latest_of(key, count)
    local total, times, classes, seen = call('LLEN', key), {}, {}, {}
    local failures = read_jobs(key, 0, count, 'failure')
    for n, failure in ipairs(failures) do
      times[n] = format('%.17g', failed_at(failure) or 0)
    end
    for _, class in ipairs(read_jobs(key, 0, count, 'klass')) do
      if class and not seen[class] then
        seen[class] = true
        classes[#classes + 1] = class
      end
    end
    local first = total <= count and times[#times] or failed_at(read_jobs(key, total - 1, 1, 'failure')[1])
    local valid, failure = pcall(cjson.decode, failures[1] or '')
    local message = valid and type(failure) == 'table' and failure.message
    message = type(message) == 'string' and string.gsub(string.sub(message, -2000), '^[\128-\191]+', '') or ''
    return '{"total":' .. total .. ',"times":[' .. table.concat(times, ',') .. '],"classes":' .. list(classes)
      .. ',"message":' .. encode(message) .. ',"first":' .. (first or 0) .. '}'
  end

  local function between(key)
    local total, times = call('LLEN', key), {}
    local function load(first, count)
      for n, failure in ipairs(read_jobs(key, first, count, 'failure')) do
        times[first + n - 1] = failure
      end
    end
    local function at(index)
      if times[index] == nil then
        load(index, 1)
      end
      if type(times[index]) ~= 'number' then
        times[index] = failed_at(times[index]) or 0
      end
      return times[index]
    end
    -- Return the number of jobs that failed at a time or later: the list begins with the latest.
    local function later_than(moment)
      if total == 0 or at(0) < moment then
        return 0
      elseif at(total - 1) >= moment then
        return total
      end
      local low, high = 1, total - 1
      while low < high do
        local middle = floor((low + high) / 2)
        if times[middle] == nil and high - low <= 4 then
          load(low, high - low)
        end
        if at(middle) >= moment then
          low = middle + 1
        else
          high = middle
        end
      end
      return low
    end
    local after, before = later_than(start), later_than(stop)
    local count = math.max(0, after - before)
    return format('[%.0f,%.17g,%.17g]', count, count > 0 and at(after - 1) or 0, count > 0 and at(before) or 0)
  end

  need(title, 'group', ARGV[first_group])
  local items = {}
  for n = first_group, #ARGV do
    local key = prefix .. 'f:' .. ARGV[n]
    items[#items + 1] = latest and latest_of(key, math.max(1, math.min(25, floor(start)))) or between(key)
  end
  return '[' .. table.concat(items, ',') .. ']'
end

if command == 'unfail' then
  local queue, group = need('Unfail', 'queue', ARGV[3]), need('Unfail', 'group', ARGV[4])
  local count = floor(need('Unfail', 'count', ARGV[5] or 25, 'number'))
  settings()
  local total = math.min(count, call('LLEN', prefix .. 'f:' .. group))
  local moved, rest = later().unfail(queue, group, math.min(total, STEP)), math.max(total - STEP, 0)
  if rest > 0 then
    call('ZINCRBY', prefix .. 'unfailing', rest, #queue .. ':' .. queue .. group)
  end
  lazy_helpers().remove_from_groups()
  return moved + rest
end

if command == 'pace' then
  local group, rate = need('Pace', 'group', ARGV[3]), need('Pace', 'rate', ARGV[4], 'number')
  settings()
  return later().pace(group, rate)
end
