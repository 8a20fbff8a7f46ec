-- get  jid
--   Reply: JSON job; nil if it does not exist
-- multiget  jid ...
--   Reply: JSON list of the existing jobs
-- jobs  complete [offset=0] [count=25]
--   Reply: list of jids, newest first
-- jobs  running|stalled|scheduled|depends|recurring queue [offset=0] [count=25]
--   A running job whose lock has expired is stalled. The count -1 means all, also for `waiting`.
--   Reply: list of jids, lowest score first
-- jobs  waiting queue [offset=0] [count=25]
--   Reply: list of jids in the order of pop
-- search  [state s] [klass k] [queue q] [count n=25] [scan n=1000] [cursor c]
--   Examines at most `scan` jobs, and never more than 1000. Pass the cursor to the next call; '' marks the end. Jobs that
--   move between two calls may be missed or returned twice. States: `waiting`, `running`, `scheduled`, `depends`,
--   `recurring`, `failed`, `complete`.
--   Reply: JSON {jobs: [jid], cursor}
-- result  jid
--   Reply: JSON {jid, state, result, progress, message, at}, each false if unknown, `result` as text, and `skipped`
--   true for a skipped job; nil if the job does not exist
-- Cost  O(k) for k jobs returned, or examined by `search`
if command == 'get' then
  local jid = need('Get', 'jid', ARGV[3])
  local job = read(jid, true)
  job[TRACKED] = call('ZSCORE', prefix .. 'tracked', jid)
  return job[KLASS] and job_json(jid, job, true)
end

if command == 'multiget' then
  return jobs_json((arguments(3)))
end

if command == 'jobs' then
  local title, kind, first = 'Jobs', need('Jobs', 'type', ARGV[3]), 5
  local places = {waiting = '-work', running = '-locks', stalled = '-locks', scheduled = '-scheduled',
    depends = '-depends', recurring = '-recur'}
  if kind == 'complete' then
    first = 4
  elseif not places[kind] then
    error('Jobs(): Unknown type "' .. kind .. '"')
  end
  local queue = kind ~= 'complete' and need(title, 'queue', ARGV[4])
  local offset = need(title, 'offset', ARGV[first] or 0, 'number')
  local number = need(title, 'count', ARGV[first + 1] or 25, 'number')
  settings()
  local last = offset + number - 1
  if kind == 'complete' then
    return call('ZREVRANGE', prefix .. 'completed', offset, last)
  end
  local key = QUEUE .. queue .. places[kind]
  if kind == 'waiting' then
    return call('ZREVRANGE', key, offset, number < 0 and -1 or last)
  elseif kind == 'scheduled' then -- due jobs count as waiting, even if there are too many to move now
    lazy_helpers().enqueue_due(queue, STEP)
    local due = call('ZCOUNT', key, 0, now)
    return call('ZRANGE', key, offset < 0 and offset or due + offset, last < 0 and last or due + last)
  elseif kind == 'depends' then
    return call('ZRANGE', key, offset, last)
  end
  -- By rank: the last page is as fast as the first.
  local first, final = 0, call('ZCARD', key)
  if kind == 'running' then
    first = call('ZCOUNT', key, '-inf', '(' .. format('%.17g', now))
  elseif kind == 'stalled' then
    final = call('ZCOUNT', key, '-inf', now)
  end
  if number >= 0 then
    final = math.min(final, first + offset + number)
  end
  return offset >= 0 and final > first + offset and call('ZRANGE', key, first + offset, final - 1) or {}
end

-- Return the number of lists of jobs in a state and a queue (nil: any), and a function that returns one: the command
-- that reads it, its key, the prefix of its jobs' hashes, and their state. Nil: there is no such state.
local function lists_of(wanted_state, queue)
  local states = {{'waiting', '-work'}, {'running', '-locks'}, {'scheduled', '-scheduled'}, {'depends', '-depends'},
    {'recurring', '-recur'}, {'failed'}, {'complete'}}
  local queues = queue and {queue} or call('ZRANGE', prefix .. 'queues', 0, -1)
  local groups, valid_state, sources = {}, not wanted_state, 0
  for _, state in ipairs(states) do
    local name, suffix = unpack(state)
    valid_state = valid_state or name == wanted_state
    if wanted_state and name ~= wanted_state then
      state[3] = 0
    elseif name == 'complete' then
      state[3] = queue and 0 or 1
    elseif suffix then
      state[3] = #queues
    else
      groups = call('SMEMBERS', prefix .. 'failures')
      table.sort(groups)
      state[3] = #groups
    end
    sources = sources + state[3]
  end
  local function source(number)
    for _, state in ipairs(states) do
      local name, suffix, size = unpack(state, 1, 3)
      if number > size then
        number = number - size
      elseif name == 'complete' then
        return 'ZREVRANGE', prefix .. 'completed', JOB, name
      elseif suffix then
        return 'ZRANGE', QUEUE .. queues[number] .. suffix, name == 'recurring' and prefix .. 'r:' or JOB, name
      else
        return 'LRANGE', prefix .. 'f:' .. groups[number], JOB, name
      end
    end
  end
  return valid_state and sources, source
end

-- Return the options of a search, the arguments from one on: all by name, the count of results, the number of jobs to
-- examine, and the two parts of the cursor. `place`: a pattern of its second part, which is `first_place` at first.
local function search_options(title, first, place, first_place)
  local options = {}
  for n = first, #ARGV, 2 do
    options[ARGV[n]] = need(title, ARGV[n], ARGV[n + 1])
  end
  local limit = need(title, 'count', options.count or 25, 'number')
  local scan = math.min(10 * STEP, need(title, 'scan', options.scan or 1000, 'number'))
  local at, last = string.match(options.cursor or '1:' .. first_place, '^(%d+):(' .. place .. ')$')
  if not at then
    error(title .. '(): Arg "cursor" not from an answer of ' .. command .. ': ' .. options.cursor)
  elseif limit < 1 or scan < 1 then
    error(title .. '(): Args "count" and "scan" must be 1 or more')
  end
  return options, limit, scan, tonumber(at), last
end

if command == 'search' then
  local options, limit, scan, at, offset = search_options('Search', 3, '%d+', '0')
  offset = tonumber(offset)
  local sources, source = lists_of(options.state, options.queue)
  if not sources then
    error('Search(): Unknown state "' .. options.state .. '"')
  end
  local jids_found = {}
  while at <= sources and scan > 0 and #jids_found < limit do
    local kind, key, hashes = source(at)
    local page_size = math.min(scan, 100)
    local jids = call(kind, key, offset, offset + page_size - 1)
    for _, jid in ipairs(jids) do
      local job = call('HMGET', hashes .. jid, 'klass', 'queue')
      offset = offset + 1
      if job[1] and (not options.klass or job[1] == options.klass)
        and (not options.queue or job[2] == options.queue) then
        jids_found[#jids_found + 1] = jid
        if #jids_found == limit then
          break
        end
      end
    end
    scan = scan - math.max(#jids, 1)
    if #jids < page_size and #jids_found < limit then
      at, offset = at + 1, 0
    end
  end
  return '{"jobs":' .. list(jids_found) .. ',"cursor":"' .. (at <= sources and at .. ':' .. offset or '') .. '"}'
end

if command == 'result' then
  local jid = need('Result', 'jid', ARGV[3])
  local state = call('HGET', JOB .. jid, 'state')
  if not state then
    return
  end
  local fields = call('HMGET', prefix .. 'x:' .. jid, 'result', 'progress', 'message', 'at', 'skipped')
  return '{"jid":' .. encode(jid) .. ',"state":"' .. state .. '","result":' .. encode(fields[1]) .. ',"progress":'
    .. encode(tonumber(fields[2]) or false) .. ',"message":' .. encode(fields[3]) .. ',"at":'
    .. encode(tonumber(fields[4]) or false) .. (fields[5] and ',"skipped":true}' or '}')
end
