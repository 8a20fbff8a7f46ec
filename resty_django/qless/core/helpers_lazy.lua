-- Helpers that few calls need. They are created when the first of them is used.
lazy_helpers = function()
  if lazy_helpers_made then
    return lazy_helpers_made
  end
  local function lock_lost(jid, worker)
    local payload = '{"event":"lock_lost","jid":' .. encode(jid) .. ',"worker":' .. encode(worker) .. '}'
    call('PUBLISH', prefix .. 'w:' .. worker, payload)
    call('PUBLISH', prefix .. 'log', payload)
  end

  -- Add a job to the tag index (by = 1) or remove it (by = -1). `tags`: a list, or the content of the field `tags`.
  local function tag(jid, tags, by)
    if type(tags) == 'string' then
      tags = #tags > 2 and cjson.decode(tags)
    end
    for _, name in ipairs(tags or {}) do
      local key, strict = prefix .. 't:' .. name, fixes == 'all'
      local changed = by == 1 and call('ZADD', key, now, jid) or by == -1 and call('ZREM', key, jid)
      if changed == 1 or not strict then
        local count = call('ZINCRBY', prefix .. 'tags', by, name)
        if strict and tonumber(count) <= 0 then
          call('ZREM', prefix .. 'tags', name)
        end
      end
    end
  end

  -- Make a job wait for the other jobs that exist and are not complete, and for itself, as qless-core does. With `off`,
  -- undo this. Long lists are left to later calls.
  local function link(jid, others, off)
    if #others > STEP then
      return later().link(jid, others, off and 'u' or 'l')
    end
    local pending = not off and others[1] and call('EXISTS', prefix .. 'pending') == 1
    for _, other in ipairs(others) do
      local state = off or other == jid or call('HGET', JOB .. other, 'state') or later().state_of(other)
      if state and state ~= 'complete' then
        if pending then
          later().relinked(jid, other)
        end
        call(off and 'SREM' or 'SADD', JOB .. jid .. '-dependencies', other)
        call(off and 'SREM' or 'SADD', JOB .. other .. '-dependents', jid)
      end
    end
  end

  -- Refuse dependencies that would make a job wait for itself, if that fix is on. Checks at most 1000 jobs.
  -- `planned`: dependencies not yet written, by jid.
  local function refuse_cycle(title, jid, others, planned)
    if not others[1] or fixes ~= 'all' then
      return
    end
    local visited, unvisited, budget = {}, {}, 10 * STEP
    local function look_at(jids)
      for _, other in ipairs(jids) do
        if other == jid then
          error(title .. '(): Job ' .. jid .. ' would wait for itself')
        end
        unvisited[#unvisited + 1] = other
      end
    end
    look_at(others)
    while unvisited[1] and budget > 0 do
      local other = table.remove(unvisited)
      if not visited[other] then
        visited[other] = true
        local dependencies = call('SRANDMEMBER', JOB .. other .. '-dependencies', budget)
        budget = budget - #dependencies
        look_at(dependencies)
        look_at(planned and planned[other] or {})
      end
    end
  end

  -- Remove a failed job from its group, unless `trimmed` says that this is done, and from a queue's statistics. The
  -- removal is only noted; `remove_from_groups` carries it out at the end of the command, because removing a member of
  -- a list makes the server scan all members before it.
  local leaving_groups = {}
  local trimmed = {} -- jid -> group from which this call has already removed the job
  local function unmark_failed(jid, failure, queue)
    local valid, decoded = pcall(cjson.decode, failure or '')
    local group = valid and type(decoded) == 'table' and decoded.group
    if group then
      local failed_at = tonumber(decoded.when)
      if trimmed[jid] ~= group then
        leaving_groups[group] = leaving_groups[group] or {}
        table.insert(leaving_groups[group], {jid, failed_at or 0})
      end
      local stats = failed_at and prefix .. 's:stats:' .. failed_at - failed_at % 86400 .. ':' .. queue
      if stats and (command ~= 'expire' or call('EXISTS', stats) == 1) then -- old statistics are gone
        call('HINCRBY', stats, 'failed', -1)
      end
    end
  end

  -- Remove many members from a long list. They are found by their failure time, by which the list is sorted (newest
  -- first), marked, and removed together. Members not found this way stay in `sought`.
  local function take_out(key, sought, length)
    local mark, marked, nearest = '\0', 0, length
    local function time_at(index)
      local jid = call('LINDEX', key, index)
      return later().failed_at(jid and jid ~= mark and call('HGET', JOB .. jid, 'failure'))
    end
    local function seek(first, last, jids)
      while last - first > 64 and jids[1] do
        local middle, newer, older = floor((first + last) / 2), {}, {}
        local at = time_at(middle)
        for _, jid in ipairs(jids) do
          local half = at and (sought[jid] or at) < at and older or newer -- nil: already found
          half[#half + 1] = jid
        end
        if older[1] and newer[1] then
          seek(middle, last, older)
        end
        first, last = newer[1] and first or middle, newer[1] and middle or last
        jids = newer[1] and newer or older
      end
      local remaining, oldest = #jids, 1 / 0
      for _, jid in ipairs(jids) do
        oldest = math.min(oldest, sought[jid] or oldest)
        remaining = sought[jid] and remaining or remaining - 1
      end
      first = math.max(0, first - 10) -- clocks differ
      while remaining > 0 and first < length do
        local page = call('LRANGE', key, first, first + STEP - 1)
        for n, candidate in ipairs(page) do
          if sought[candidate] then
            call('LSET', key, first + n - 1, mark)
            marked, nearest = marked + 1, math.min(nearest, first + n - 1)
            sought[candidate], remaining = nil, remaining - 1
          end
        end
        first = first + #page
        if (time_at(first - 1) or oldest) < oldest then
          break
        end
      end
    end
    local jids = {}
    for jid in pairs(sought) do
      jids[#jids + 1] = jid
    end
    seek(0, length, jids)
    if marked > 0 then -- from the end that is near
      call('LREM', key, nearest < length / 2 and marked or -marked, mark)
    end
  end

  local function remove_from_groups()
    for group, jobs in pairs(leaving_groups) do
      local key, sought = prefix .. 'f:' .. group, {}
      for _, job in ipairs(jobs) do
        sought[job[1]] = job[2]
      end
      if #jobs > 2 then
        take_out(key, sought, call('LLEN', key))
      end
      for jid in pairs(sought) do
        call('LREM', key, 0, jid)
      end
      if call('EXISTS', key) == 0 then
        call('SREM', prefix .. 'failures', group)
      end
    end
    leaving_groups = {}
  end

  -- Set the configured expiry of a day's statistics. Called at the first and at each hundredth write to a hash, so that
  -- it also applies to hashes that another core has created.
  local function expire_stats(key, ...)
    if fixes ~= 'none' then
      local days = 0
      for n, value in ipairs(call('HMGET', prefix .. 'config', ...)) do
        days = math.max(days, tonumber(value) or (select(n, ...) == 'stats-history' and 30 or 7))
      end
      if days > 0 then
        call('EXPIRE', key, floor((days + 1) * 86400))
      end
    end
  end

  local function count(queue, field)
    local key = prefix .. 's:stats:' .. now - now % 86400 .. ':' .. queue
    local value = call('HINCRBY', key, field, 1)
    if value % 100 == 1 then
      expire_stats(key, 'stats-history')
    end
  end

  local function failure(group, message, at, worker)
    return '{"group":' .. encode(group) .. ',"message":' .. encode(message) .. ',"when":' .. encode(at)
      .. ',"worker":' .. encode(worker) .. '}'
  end

  -- Mark a job as failed. `extra`: more fields for the history entry; `at`, `worker`: fields of the failure; `tied`:
  -- whether it may have an outcome or dependents, if the caller knows.
  local function mark_failed(jid, queue, group, message, at, worker, extra, tied)
    append_history(jid, moment, '"failed"', '"group":' .. encode(group) .. (extra or ''))
    call('HSET', JOB .. jid, 'state', 'failed', 'worker', '', 'expires', '',
      'failure', failure(group, message, at, worker))
    for n, job in ipairs(leaving_groups[group] or {}) do
      if job[1] == jid then -- it comes back before it has left
        table.remove(leaving_groups[group], n)
        call('LREM', prefix .. 'f:' .. group, 0, jid)
        break
      end
    end
    trimmed[jid] = nil
    note_job(jid)
    call('SADD', prefix .. 'failures', group)
    call('LPUSH', prefix .. 'f:' .. group, jid)
    count(queue, 'failures')
    count(queue, 'failed')
    record_figures('f', queue, {call('HGET', JOB .. jid, 'klass') or ''})
    if tied or tied == nil and call('EXISTS', prefix .. 'o:' .. jid, JOB .. jid .. '-dependents') > 0 then
      outcomes().ended(jid, 'failed')
    end
  end

  -- Remove a job from the index. `member`: one of its members there, in case the list of its terms is lost.
  local function unindex(jid, member)
    local key = prefix .. 'i:' .. jid
    local age, terms = string.match(call('GET', key) or '', '^%x+\n(%x+)\n(.*)$')
    local members = {member}
    for term in string.gmatch(terms or '', '(.-)%z\n') do
      members[#members + 1] = term .. '\0' .. age .. jid
    end
    if members[1] then
      call('ZREM', prefix .. 'index', unpack(members))
      call('DEL', key)
    end
  end

  -- Move at most `count` due jobs of a queue to the state `waiting`. With `spawning`, first create up to `count` jobs
  -- of recurring jobs that are due, then move scheduled ones. Return the number of scheduled jobs moved.
  local function enqueue_due(queue, count, spawning)
    local work = QUEUE .. queue .. '-work'
    if spawning then
      local spawned, schedule_key = 0, QUEUE .. queue .. '-recur'
      local schedule = call('ZRANGEBYSCORE', schedule_key, 0, now, 'WITHSCORES', 'LIMIT', 0, count)
      for n = 1, #schedule, 2 do
        local parent, due = schedule[n], tonumber(schedule[n + 1])
        local job = call('HMGET', prefix .. 'r:' .. parent, 'interval', 'backlog', 'klass', 'data', 'priority', 'tags',
          'retries')
        local interval, backlog, tags = tonumber(job[1]) or 0, tonumber(job[2]) or 0, job[6] or '{}'
        if interval <= 0 then -- neither this core nor another wrote this
          call('ZREM', schedule_key, parent)
          due = now + 1
        elseif interval % 1 == 0 or fixes == 'none' then
          due = floor(due)
        end
        local late = (now - due) / interval
        if backlog ~= 0 and late > backlog then
          due = due + math.ceil(late - backlog) * interval
        end
        while due <= now and spawned < count do
          local jid, tried = nil, 0
          repeat -- after unrecur and another recur the count restarts, and older children may exist
            jid = parent .. '-' .. call('HINCRBY', prefix .. 'r:' .. parent, 'count', 2 ^ floor(tried / STEP))
            tried = tried + 1
          until call('EXISTS', JOB .. jid) == 0 or fixes == 'none'
          tag(jid, tags, 1)
          call('HSET', JOB .. jid, 'jid', jid, 'klass', job[3], 'data', job[4], 'priority', job[5], 'tags', tags,
            'state', 'waiting', 'worker', '', 'expires', 0, 'queue', queue, 'retries', job[7], 'remaining', job[7],
            'time', format('%.20f', due), 'spawned_from_jid', parent)
          append_history(jid, floor(due), '"put"', '"q":' .. encode(queue), true)
          if is_indexed(job[3]) then
            note_job(jid)
          end
          call('ZADD', work, (tonumber(job[5]) or 0) - due / 10000000000, jid)
          due = due + interval
          call('ZADD', schedule_key, due, parent)
          spawned = spawned + 1
        end
      end
    end
    local schedule_key = QUEUE .. queue .. '-scheduled'
    local due = call('ZRANGEBYSCORE', schedule_key, 0, now, 'LIMIT', 0, count)
    for _, jid in ipairs(due) do
      local priority = call('HGET', JOB .. jid, 'priority')
      call('ZREM', schedule_key, jid)
      if priority then
        call('ZADD', work, (tonumber(priority) or 0) - now / 10000000000, jid)
        call('HSET', JOB .. jid, 'state', 'waiting')
      end
    end
    return #due
  end

  lazy_helpers_made = {lock_lost = lock_lost, tag = tag, link = link, refuse_cycle = refuse_cycle,
    unmark_failed = unmark_failed, trimmed = trimmed, remove_from_groups = remove_from_groups,
    expire_stats = expire_stats, count = count, failure = failure, mark_failed = mark_failed, enqueue_due = enqueue_due,
    unindex = unindex}
  return lazy_helpers_made
end
