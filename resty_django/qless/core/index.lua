-- The index of jobs, with which a search finds jobs without examining all of them.
--
-- `index` is a sorted set with equal scores. Its members are <term>\0<age><jid>. Clients write the terms, since terms
-- contain arguments, and only clients know which ones may be shown:
--   c:<class>   f:<class> of a job that has failed   t:<txid>
--   w:<word>\31<path>, a word of an argument, of an error and so on, in lower case
-- `age` is 0xffffffff minus the time in seconds, in hexadecimal, so that the newest job comes first within a term.
-- i:<jid> contains the terms of a job: <mark>\n<age>\n, and <term>\0\n for each in ascending order. The mark is a hash
-- of all from which they were made. `unindexed` lists jobs whose terms are to be written; a pass over all jobs adds
-- those that other cores put, fail or change. The index contains failed jobs and the classes in `index-classes`, see
-- `is_indexed`.
--
-- A pattern is [prefix, path]: it fits terms that begin with the prefix and, if `path` is not empty, have this path or
-- one below it.
--
-- index.take  [count=100]
--   Removes jobs from the list of jobs to index, at most 500, and returns them. `data` longer than 16 kB is left out.
--   Reply: JSON list of [jid, mark, klass, data, txid, failure, tags], false for what is missing
-- index.put  for each job: jid mark terms
--   Replaces the terms of jobs. `mark` comes from `index.take`; `terms` is a sorted JSON list of at most 50 terms.
--   Reply: integer: number of these jobs that were indexed
-- index.sweep
--   Continues the pass over all jobs: examines about 250 jobs, and removes indexed jobs, of 250, that do not exist or
--   do not belong there. If `max-index` is 0, removes 250 entries.
--   Reply: integer: 1: call it again; 0: the pass is complete, and the next one begins after a minute
-- index.count  patterns
--   Reply: JSON {counts, entries, limit, unindexed, complete, classes}: the number of entries of each pattern, the size
--   of the index and its limit, the number of jobs to index, whether a pass has been completed, and the option
--   `index-classes`
-- index.find  terms [state s] [queue q] [count n=25] [scan n=1000] [cursor c]
--   Finds jobs. `terms` is a JSON list of lists of patterns: a result has, for each list, a term that fits one of its
--   patterns. The first list is read from the index, newest jobs first within a term; the others are checked. Examines
--   at most `scan` entries, and never more than 1000. Pass the cursor to the next call; '' marks the end.
--   Reply: JSON {jobs: [jid], cursor, examined}
-- index.classes
--   Reply: list of the latest 1000 classes, newest first
-- Cost  O(log n), plus O(k) for k jobs taken, written or examined
local MAX_CLASSES, MAX_DATA, MAX_TERMS = 1000, 16384, 50

local function index_full()
  settings()
  return call('ZCARD', prefix .. 'index') >= max_index
end

-- Return what the terms of a job are made of, or nil if the index does not contain it: mark, class, data, txid,
-- failure, tags; false for what is missing. Data longer than 16 kB count by their length.
local function parts_of(jid)
  local key = JOB .. jid
  local length = call('HSTRLEN', key, 'data')
  local job = call('HMGET', key, 'klass', 'txid', 'failure', 'state', 'tags', length <= MAX_DATA and 'data' or '')
  local class, txid, failure, state, tags, data = unpack(job, 1, 6)
  local failed = state == 'failed'
  if not class or not is_indexed(class, failed) then
    return
  end
  failure = failed and (failure or '')
  local text = table.concat({class, data or length, txid or '', failure or 0, tags or ''}, '\0')
  return {string.sub(redis.sha1hex(text), 1, 12), class, data, txid, failure, tags}
end

-- Return a list of patterns if it is one, or raise an error.
local function checked_patterns(title, name, patterns)
  for _, pattern in ipairs(type(patterns) == 'table' and patterns or {false}) do
    if type(pattern) ~= 'table' or type(pattern[1]) ~= 'string' or type(pattern[2]) ~= 'string' then
      error(title .. '(): Arg "' .. name .. '" not a JSON list of [prefix, path]: ' .. encode(patterns))
    end
  end
  return patterns
end

if command == 'index.take' then
  local count = math.min(5 * STEP, floor(need('Index.Take', 'count', ARGV[3] or STEP, 'number')))
  if index_full() then
    call('DEL', prefix .. 'unindexed')
    return '{}'
  end
  local jobs = {}
  for _, jid in ipairs(count > 0 and call('LPOP', prefix .. 'unindexed', count) or {}) do
    local parts = parts_of(jid)
    if parts then
      jobs[#jobs + 1] = {jid, unpack(parts, 1, 6)}
    else
      lazy_helpers().unindex(jid)
    end
  end
  return list(jobs)
end

if command == 'index.put' then
  local title, indexed = 'Index.Put', 0
  need(title, 'jid', ARGV[3])
  if (#ARGV - 2) % 3 ~= 0 then
    error('Index.Put(): a job is three arguments, jid mark terms, but there are ' .. #ARGV - 2)
  end
  local terms_of = {}
  for n = 3, #ARGV, 3 do
    terms_of[n] = need(title, 'terms', ARGV[n + 2], 'list')
    if #terms_of[n] > MAX_TERMS or find(table.concat(terms_of[n]), '[%z\n]') then
      error('Index.Put(): Arg "terms" has more than 50 terms, or control characters: ' .. ARGV[n + 2])
    end
  end
  local full = index_full()
  for n = 3, #ARGV, 3 do
    local jid, mark, terms = ARGV[n], ARGV[n + 1], terms_of[n]
    local key = prefix .. 'i:' .. jid
    local age = string.match(call('GET', key) or '', '^%x+\n(%x+)') or format('%08x', 4294967295 - moment)
    local members, stored = {}, {mark .. '\n' .. age .. '\n'}
    for _, term in ipairs(terms) do
      members[#members + 1] = 0
      members[#members + 1] = term .. '\0' .. age .. jid
      stored[#stored + 1] = term .. '\0\n'
    end
    lazy_helpers().unindex(jid)
    if members[1] and not full and call('EXISTS', JOB .. jid) == 1 then
      call('ZADD', prefix .. 'index', unpack(members))
      call('SET', key, table.concat(stored))
      indexed = indexed + 1
      local class = string.match(terms[1], '^c:(.*)$')
      if class then
        call('ZADD', prefix .. 'classes', moment, class)
      end
    end
  end
  call('ZREMRANGEBYRANK', prefix .. 'classes', 0, -1 - MAX_CLASSES)
  return indexed
end

if command == 'index.sweep' then
  local full = index_full()
  local key, budget = prefix .. 'index-pass', 2.5 * STEP
  local pass = call('HMGET', key, 'jobs', 'entry', 'until')
  if max_index <= 0 then
    local members = call('ZRANGE', prefix .. 'index', 0, budget - 1)
    for _, member in ipairs(members) do
      lazy_helpers().unindex(string.sub(member, find(member, '\0', 1, true) + 9), member)
    end
    call('DEL', key, prefix .. 'unindexed', prefix .. 'classes')
    return members[1] and 1 or 0
  elseif (tonumber(pass[3]) or 0) > now then
    return 0
  end
  local at, offset = string.match(pass[1] or '1:0', '^(%d+):(%d+)$')
  at, offset = tonumber(at), tonumber(offset)
  local count, source = lists_of()
  local examined = full and budget or 0
  while at <= count and examined < budget do
    local kind, list_key, hashes, state = source(at)
    local concerned = hashes == JOB and (state == 'failed' or index_classes ~= '')
    local jids = concerned and call(kind, list_key, offset, offset + STEP - 1) or {}
    for _, jid in ipairs(jids) do
      local parts = parts_of(jid)
      if parts and parts[1] ~= string.match(call('GET', prefix .. 'i:' .. jid) or '', '^(%x+)\n') then
        note_job(jid)
      end
    end
    examined, offset = examined + math.max(1, #jids), offset + #jids
    if #jids < STEP then
      at, offset = at + 1, 0
    end
  end
  local members = call('ZRANGEBYLEX', prefix .. 'index', pass[2] and '(' .. pass[2] or '[c:', '[c:\255', 'LIMIT', 0,
    budget)
  for _, member in ipairs(members) do
    local jid = string.sub(member, find(member, '\0', 1, true) + 9)
    local job = call('HMGET', JOB .. jid, 'klass', 'state')
    local stored = call('GET', prefix .. 'i:' .. jid) or ''
    local stop = find(member, '\0', 1, true)
    if not job[1] or not is_indexed(job[1], job[2] == 'failed') then
      lazy_helpers().unindex(jid, member)
    elseif not find(stored, '\n' .. string.sub(member, 1, stop) .. '\n', 1, true)
      or string.match(stored, '^%x+\n(%x+)') ~= string.sub(member, stop + 1, stop + 8) then
      call('ZREM', prefix .. 'index', member)
    end
  end
  local jobs_left, entries_left = at <= count and not full, #members == budget
  if not jobs_left and not entries_left then
    call('HDEL', key, 'jobs', 'entry')
    call('HSET', key, 'until', now + 60)
    return 0
  end
  call('HSET', key, 'jobs', at .. ':' .. offset, 'entry', entries_left and members[#members] or 'c:\255')
  return 1
end

if command == 'index.count' then
  settings()
  local patterns = checked_patterns('Index.Count', 'patterns', need('Index.Count', 'patterns', ARGV[3], 'json'))
  local counts = {}
  for n, pattern in ipairs(patterns) do
    counts[n] = call('ZLEXCOUNT', prefix .. 'index', '[' .. pattern[1], '[' .. pattern[1] .. '\255')
  end
  return '{"counts":' .. list(counts) .. ',"entries":' .. call('ZCARD', prefix .. 'index') .. ',"limit":'
    .. format('%.0f', max_index) .. ',"unindexed":' .. call('LLEN', prefix .. 'unindexed') .. ',"complete":'
    .. encode(call('HEXISTS', prefix .. 'index-pass', 'until') == 1) .. ',"classes":' .. encode(index_classes) .. '}'
end

if command == 'index.classes' then
  return call('ZREVRANGE', prefix .. 'classes', 0, MAX_CLASSES - 1)
end

if command == 'index.find' then
  settings()
  local title = 'Index.Find'
  local wanted_terms = need(title, 'terms', ARGV[3], 'json')
  for _, patterns in ipairs(type(wanted_terms) == 'table' and wanted_terms or {false}) do
    checked_patterns(title, 'terms', patterns)
  end
  local options, limit, scan, at, last = search_options(title, 4, '.*', '')

  local function has_path(term, path)
    if path == '' then
      return true
    end
    local actual = string.match(term, '\31(.*)$') or ''
    return actual == path or string.sub(actual, 1, #path + 1) == path .. '.'
  end

  -- Return the first of a job's terms that fits a pattern.
  local function first_fit(stored, pattern)
    local start = 1
    while true do
      local newline = find(stored, '\n' .. pattern[1], start, true)
      local stop = newline and find(stored, '\0', newline, true)
      if not stop then
        return
      end
      local term = string.sub(stored, newline + 1, stop - 1)
      if has_path(term, pattern[2]) then
        return term
      end
      start = stop
    end
  end

  local function fits_any(stored, patterns, count)
    for n = 1, count do
      if first_fit(stored, patterns[n]) then
        return true
      end
    end
  end

  local patterns = wanted_terms[1] or {}
  -- Return whether a job is a result that no earlier member has returned.
  local function is_new_result(jid, term, member)
    local job = call('HMGET', JOB .. jid, 'state', 'queue')
    local state = job[1]
    if options.state == 'stalled' then -- the caller compares the expiry of the lock
      state = state == 'running' and 'stalled' or state
    end
    if state and (options.state and state ~= options.state or options.queue and job[2] ~= options.queue) then
      return false
    end
    local stored = state and call('GET', prefix .. 'i:' .. jid)
    if not stored then
      lazy_helpers().unindex(jid, member)
      return false
    end
    if first_fit(stored, patterns[at]) ~= term or fits_any(stored, patterns, at - 1) then
      return false
    end
    for n = 2, #wanted_terms do
      if not fits_any(stored, wanted_terms[n], #wanted_terms[n]) then
        return false
      end
    end
    return true
  end

  local jids, examined = {}, 0
  while patterns[at] and examined < scan and #jids < limit do
    local pattern = patterns[at]
    local page_size = math.min(STEP, scan - examined)
    local members = call('ZRANGEBYLEX', prefix .. 'index', last ~= '' and '(' .. last or '[' .. pattern[1],
      '[' .. pattern[1] .. '\255', 'LIMIT', 0, page_size)
    for _, member in ipairs(members) do
      local stop = find(member, '\0', 1, true)
      local term, jid = string.sub(member, 1, stop - 1), string.sub(member, stop + 9)
      examined, last = examined + 1, member
      if has_path(term, pattern[2]) and is_new_result(jid, term, member) then
        jids[#jids + 1] = jid
        if #jids == limit then
          break
        end
      end
    end
    if #members < page_size and #jids < limit then
      at, last = at + 1, ''
    end
  end
  return '{"jobs":' .. list(jids) .. ',"cursor":' .. encode(patterns[at] and at .. ':' .. last or '') .. ',"examined":'
    .. examined .. '}'
end
