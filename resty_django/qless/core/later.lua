-- Deferred work: parts of a call that later calls finish, so that no call blocks the server for long.
--
-- `pending` is a sorted set of task names, scored by the time when each task was created. A name is
-- <kind>:<number>:<jid>, and p:<name> holds the remaining work:
--   r  release the jobs that wait for a complete job: a set, sorted into p:<name>-sorted by priority first, so that the
--      jobs continue in the same order as in a single step
--   l  make a job wait for others: a set of their jids
--   u  stop a job from waiting for others: the same
--   o  stop a job from waiting for others after `depends off`, which ignores a delay: the same
--   f  let the jobs follow that wait for a job or group that failed, or has another try: a cursor into the set of them
--   k  the same for a job that was skipped
-- Pending work is consistent for other cores, too: a job waits for all jobs in its `-dependencies`, even if the
-- `-dependents` of these are not written yet, since the task that writes them checks their state first.
--
-- `unfailing` is a sorted set of <length of the queue's name>:<queue><group>, scored by the number of failed jobs of
-- the group that are still to be moved to the queue. Earlier versions of this core do not read it.
--
-- q:<queue>-paced is a sorted set of the failure groups in a paced retry whose oldest job is of the queue, scored by
-- the time of its turn. Only a pop of the queue moves it, and makes up for at most 0.1 seconds without a pop, so a
-- pause leads to no burst. The hash paced:<group> has this queue, the `rate` per second, the jobs `left`, when they
-- failed at the latest (`last`), the number `stopped`, and the `id` of the group of jobs that counts how they end.
local STEP = 100
local lazy_helpers, lazy_helpers_made, outcomes -- defined in helpers_lazy.lua and outcomes.lua

-- Creates its functions when one of them is needed.
local later_made
local function later()
  if later_made then
    return later_made
  end
  local PENDING, PART, UNFAILING = prefix .. 'pending', prefix .. 'p:', prefix .. 'unfailing'

  -- Call a command with many values, a few thousand at a time.
  local function in_parts(values, name, key)
    for n = 1, #values, 5000 do
      call(name, key, unpack(values, n, math.min(n + 4999, #values)))
    end
  end

  -- Continue a job that no longer waits for others, as of the time `at`. `wakes` collects the earliest time at which
  -- each queue has a job; nil: notify workers at once.
  local function enqueue_freed(jid, at, wakes, at_once)
    local job = call('HMGET', JOB .. jid, 'state', 'queue', 'priority', 'scheduled')
    local queue, due = job[2], not at_once and tonumber(job[4])
    if job[1] ~= 'depends' then
      return job[1] == 'failed' and outcomes().wait_again(jid)
    end
    call('ZREM', QUEUE .. queue .. '-depends', jid)
    if due then
      call('ZADD', QUEUE .. queue .. '-scheduled', due, jid)
      call('HSET', JOB .. jid, 'state', 'scheduled')
      call('HDEL', JOB .. jid, 'scheduled')
    else
      call('ZADD', QUEUE .. queue .. '-work', (tonumber(job[3]) or 0) - at / 10000000000, jid)
      call('HSET', JOB .. jid, 'state', 'waiting')
    end
    due = due or at
    if wakes then
      wakes[queue] = math.min(wakes[queue] or due, due)
    else
      call('PUBLISH', prefix .. 'wake:' .. queue, due)
    end
  end

  -- Let a job stop waiting for another one. `at`, `wakes`: as above.
  local function unlinked(jid, other, at, wakes)
    local key = JOB .. jid .. '-dependencies'
    if call('SREM', key, other) == 1 and call('SCARD', key) == 0 then
      enqueue_freed(jid, at, wakes)
    end
  end

  -- Record a task. Return its name.
  local function note(kind, jid)
    local number, name = -1
    repeat -- an earlier call may have left one of this kind
      number = number + 1
      name = kind .. ':' .. number .. ':' .. jid
    until not call('ZSCORE', PENDING, name)
    call('ZADD', PENDING, now, name)
    return name
  end

  -- Defer that a job waits for many others, or stops waiting for them. `others` nil: all that it waits for, or the
  -- staged ones if it begins to wait.
  local function link(jid, others, kind)
    local key, name = JOB .. jid .. '-dependencies', note(kind, jid)
    if others then
      in_parts(others, kind == 'l' and 'SADD' or 'SREM', key)
      in_parts(others, 'SADD', PART .. name)
    elseif kind == 'l' then
      local staged = PART .. 's:' .. jid
      call('PERSIST', staged)
      call('PERSIST', staged .. '-all')
      call('RENAME', staged, PART .. name)
      call('RENAME', staged .. '-all', key)
    elseif call('EXISTS', key) == 1 then
      call('RENAME', key, PART .. name)
    end
  end

  -- Stage jobs that the next put of a job waits for, if they are too many for one call.
  local function stage(jid, others)
    local staged = PART .. 's:' .. jid
    for _, key in ipairs({staged, staged .. '-all'}) do
      in_parts(others, 'SADD', key)
      call('EXPIRE', key, 3600)
    end
  end

  -- Release the jobs that wait for the complete job `jid`; if they are many, in later calls. Return whether that is so.
  local releasable = STEP
  local function release(jid)
    local key = JOB .. jid .. '-dependents'
    local count = call('SCARD', key)
    if count == 0 then
      return false
    elseif count <= releasable then
      releasable = command == 'complete.many' and releasable - count or releasable
      for _, other in ipairs(call('SMEMBERS', key)) do
        unlinked(other, jid, now)
      end
      call('DEL', key)
      return false
    end
    return call('RENAME', key, PART .. note('r', jid))
  end

  -- Return the state of a job or a group: nil if neither exists.
  local function state_of(jid)
    local state = call('HGET', JOB .. jid, 'state') or redis.pcall('HGET', prefix .. 'g:' .. jid, 'state')
    return type(state) == 'string' and state or nil
  end

  -- Drop a job from pending releases by an earlier end of another job, since it waits for the next end now.
  local function relinked(jid, other)
    local number, missing = 0, 0
    while missing < 2 do -- an earlier one may have finished
      local name = 'r:' .. number .. ':' .. other
      if call('ZSCORE', PENDING, name) then
        call('SREM', PART .. name, jid)
        call('ZREM', PART .. name .. '-sorted', jid)
      else
        missing = missing + 1
      end
      number = number + 1
    end
  end

  -- Release the `limit` jobs of the highest priority among those sorted so far, after sorting five times as many.
  local function release_some(key, jid, at, limit, wakes)
    local unsorted, pairs_of = call('SPOP', key, 5 * limit), {}
    for n, other in ipairs(unsorted) do
      local priority = tonumber(call('HGET', JOB .. other, 'priority')) or 0
      pairs_of[2 * n - 1], pairs_of[2 * n] = priority - priority == 0 and priority or 0, other
    end
    in_parts(pairs_of, 'ZADD', key .. '-sorted')
    local best = call('ZPOPMAX', key .. '-sorted', limit)
    for n = 1, #best, 2 do
      unlinked(best[n], jid, at, wakes)
    end
    return #best == 2 * limit or call('EXISTS', key) == 1
  end

  local function link_some(key, jid, at, limit, wakes, kind)
    local dependencies_key = JOB .. jid .. '-dependencies'
    for _, other in ipairs(call('SPOP', key, limit)) do
      local waited = call('SISMEMBER', dependencies_key, other) == 1 -- may have changed since
      local dependents_key = JOB .. other .. '-dependents'
      if kind ~= 'l' and not waited then
        call('SREM', dependents_key, jid)
      elseif kind == 'l' and waited then
        local state = other == jid or state_of(other)
        if state and state ~= 'complete' then
          relinked(jid, other)
          call('SADD', dependents_key, jid)
          if call('EXISTS', prefix .. 'o:' .. jid) == 1 then
            outcomes().apply(jid, other)
          end
        else
          call('SREM', dependencies_key, other)
          call('SREM', dependents_key, jid)
        end
      end
    end
    local left = call('EXISTS', key) == 1
    if not left and call('EXISTS', dependencies_key) == 0 then
      enqueue_freed(jid, at, wakes, kind == 'o')
    end
    return left
  end

  -- Move the oldest `limit` jobs of a failure group to a queue. Return the number of those that exist.
  local function unfail(queue, group, limit)
    local key, moved = prefix .. 'f:' .. group, 0
    local jids = limit > 0 and call('LRANGE', key, -limit, -1) or {}
    if jids[1] then
      call('LTRIM', key, 0, -1 - limit)
    end
    if call('EXISTS', key) == 0 then
      call('SREM', prefix .. 'failures', group)
    end
    for _, jid in ipairs(jids) do
      lazy_helpers().trimmed[jid] = group
    end
    for n = #jids, 1, -1 do
      local jid = jids[n]
      local job = call('HMGET', JOB .. jid, 'priority', 'retries', 'failure', 'queue', 'state')
      if job[5] == 'failed' and call('EXISTS', prefix .. 'o:' .. jid) == 1 then
        outcomes().missed(jid, 'failed')
      end
      local blocked = job[1] and call('EXISTS', JOB .. jid .. '-dependencies') == 1
      if blocked and (job[5] == 'depends' or outcomes().wait_again(jid)) then
        moved = moved + 1 -- it did not run, since a job on which it depends had failed, perhaps one of these
      elseif job[1] then
        append_history(jid, moment, '"put"', '"q":' .. encode(queue))
        call('HSET', JOB .. jid, 'state', 'waiting', 'worker', '', 'expires', 0, 'queue', queue, 'remaining', job[2])
        call('ZADD', QUEUE .. queue .. '-work', (tonumber(job[1]) or 0) - now / 10000000000, jid)
        moved = moved + 1
        if fixes == 'all' then
          lazy_helpers().unmark_failed(jid, job[3], job[4])
          call('HSET', JOB .. jid, 'failure', '{}')
        end
        if call('EXISTS', prefix .. 'o:' .. jid, JOB .. jid .. '-dependents') > 0 then
          outcomes().put_again(jid, true)
          outcomes().restored(jid)
        end
      end
    end
    if moved > 0 then
      if fixes == 'all' then
        call('ZADD', prefix .. 'queues', 'NX', now, queue)
      end
      call('PUBLISH', prefix .. 'wake:' .. queue, now)
    end
    return moved
  end

  local function unfail_some(limit)
    local name, left = unpack(call('ZRANGE', UNFAILING, 0, 0, 'WITHSCORES'))
    local length, names = string.match(name or '', '^(%d+):(.*)$')
    if length then
      local queue, group = string.sub(names, 1, length), string.sub(names, length + 1)
      limit = math.min(left, math.ceil(limit / 2)) -- consequences take as long as the job
      unfail(queue, group, limit)
      if left - limit > 0 and call('EXISTS', prefix .. 'f:' .. group) == 1 then
        call('ZADD', UNFAILING, left - limit, name)
      else
        call('ZREM', UNFAILING, name)
      end
    elseif name then -- not written by this core
      call('ZREM', UNFAILING, name)
    end
  end

  -- Return when a job failed, nil if that is unknown. It mostly stands after the message, which may be long.
  local function failed_at(failure)
    local pattern = '"when":%s*([%d.eE+]+)'
    return tonumber(failure and (string.match(failure, pattern, -200) or string.match(failure, pattern)))
  end

  -- Return the queue (`queue` if the job is gone) and the jid of the oldest job of a group; nil: none failed until
  -- `last`.
  local function oldest_failed(group, last, queue)
    local jid = call('LINDEX', prefix .. 'f:' .. group, -1)
    local job = jid and call('HMGET', JOB .. jid, 'queue', 'failure') or {}
    if jid and (failed_at(job[2]) or 0) <= last then
      return job[1] or queue, jid
    end
  end

  -- Let a paced retry continue with a job of this queue, after other groups.
  local function place(group, queue, at)
    local first = tonumber(call('ZRANGE', QUEUE .. queue .. '-paced', 0, 0, 'WITHSCORES')[2]) or 0
    call('HSET', prefix .. 'paced:' .. group, 'queue', queue)
    call('ZADD', QUEUE .. queue .. '-paced', 'NX', math.max(at, first + 0.001), group)
    call('PUBLISH', prefix .. 'wake:' .. queue, at)
  end

  local function end_pace(group, queue, id)
    call('ZREM', QUEUE .. queue .. '-paced', group)
    call('HSET', prefix .. 'paced:' .. group, 'left', 0)
    call('EXPIRE', prefix .. 'paced:' .. group, 86400)
    call('HSET', prefix .. 'g:' .. id, 'state', 'running')
    outcomes().check_group(id)
  end

  -- Retry the jobs of a group at a rate per second: start, or add them to those that are left. Return how many are
  -- left. With the rate 0, stop; these jobs stay failed.
  local function pace(group, rate)
    local key, first_queue = prefix .. 'paced:' .. group, oldest_failed(group, now, '')
    local left, queue, id = unpack(call('HMGET', key, 'left', 'queue', 'id'))
    left = tonumber(left) or 0
    if rate <= 0 and left > 0 then
      call('HSET', key, 'stopped', left)
      end_pace(group, queue, id)
    elseif rate > 0 and first_queue then
      if left == 0 then
        queue, id = first_queue, redis.sha1hex(group .. now)
        call('DEL', key)
        call('HSET', prefix .. 'g:' .. id, 'name', group, 'state', 'open', 'at', now, 'total', 0)
        call('ZADD', prefix .. 'groups', now, id)
      end
      left = call('LLEN', prefix .. 'f:' .. group)
      call('HSET', key, 'rate', rate, 'left', left, 'last', now, 'id', id)
      place(group, queue, now)
    end
    return left
  end

  -- Move the failed jobs of a queue whose turn it is: in at most ten steps a second, one group after the other.
  local function pace_some(queue)
    local key = QUEUE .. queue .. '-paced'
    local group, due = unpack(call('ZRANGEBYSCORE', key, '-inf', now, 'WITHSCORES', 'LIMIT', 0, 1))
    local pace_key = prefix .. 'paced:' .. (group or '')
    local rate, left, last, id = unpack(call('HMGET', pace_key, 'rate', 'left', 'last', 'id'))
    rate, left, last, due = tonumber(rate), tonumber(left), tonumber(last), math.max(tonumber(due) or now, now - 0.1)
    if not (rate and left and last and id) then
      return call('ZREM', key, group or '')
    end
    local limit = math.min(left, math.max(1, math.min(STEP / 2, floor(rate / 10))))
    local next_queue, jid = oldest_failed(group, last, queue)
    while next_queue == queue and limit > 0 do
      if unfail(queue, group, 1) == 1 and not outcomes().is_member(jid, id) then
        outcomes().join(jid, id, call('HGET', JOB .. jid, 'state'))
      end
      left, limit, due = left - 1, limit - 1, due + 1 / rate
      next_queue, jid = oldest_failed(group, last, queue)
    end
    lazy_helpers().remove_from_groups()
    for _, other in ipairs(call('ZRANGEBYSCORE', key, '-inf', due)) do
      call('ZADD', key, other == group and due or due + 0.001, other)
    end
    call('HSET', pace_key, 'left', left)
    if left <= 0 or not next_queue then
      end_pace(group, queue, id)
    elseif next_queue ~= queue then
      call('ZREM', key, group)
      place(group, next_queue, due)
    end
  end

  -- Continue the oldest pending task, or else an `unfail`, for at most `limit` jobs (five times as many if they are
  -- only examined). Return whether anything is left.
  local function step(limit)
    local oldest = call('ZRANGE', PENDING, 0, 0, 'WITHSCORES')
    local name, at, wakes = oldest[1], tonumber(oldest[2]), {}
    local left, kind, jid = nil, string.match(name or '', '^(%a):%d+:(.*)$')
    if not name then
      unfail_some(limit)
    elseif kind == 'r' then
      left = release_some(PART .. name, jid, at, limit, wakes)
    elseif kind == 'f' or kind == 'k' then
      left = outcomes().some(kind, PART .. name, jid, limit)
    else
      left = link_some(PART .. name, jid, at, limit, wakes, kind)
    end
    if name and not left then
      call('ZREM', PENDING, name)
    end
    if lazy_helpers_made then
      lazy_helpers().remove_from_groups()
    end
    for queue, due in pairs(wakes) do
      call('PUBLISH', prefix .. 'wake:' .. queue, due)
    end
    return left or call('EXISTS', PENDING, UNFAILING) > 0
  end

  local function delete_complete(jid)
    local tags = call('HGET', JOB .. jid, 'tags')
    if tags and #tags > 2 then
      lazy_helpers().tag(jid, tags, -1)
    end
    lazy_helpers().unindex(jid)
    call('DEL', JOB .. jid, JOB .. jid .. '-history', prefix .. 'x:' .. jid)
    if fixes ~= 'none' then
      call('DEL', JOB .. jid .. '-dependencies')
    end
    if fixes == 'all' then
      call('ZREM', prefix .. 'tracked', jid)
    end
    call('ZREM', prefix .. 'completed', jid)
  end

  -- Delete at most `limit` complete jobs that are too old, then at most `limit` beyond the configured count. Return
  -- whether any are left. Those that no worker has written to the archive yet are counted, see archive/marks.py.
  local function expire(life, kept, limit)
    local completed, left = prefix .. 'completed', false
    local archived = tonumber((call('HGET', prefix .. 'archive', 'until')))
    life = life == life and life or 604800 -- not NaN
    for round = 1, kept >= 0 and 2 or 1 do
      local gone
      if round == 1 then
        gone = call('ZRANGEBYSCORE', completed, 0, now - life, 'LIMIT', 0, limit)
      else
        local surplus = math.min(call('ZCARD', completed) - floor(kept), limit)
        gone = surplus > 0 and call('ZRANGE', completed, 0, surplus - 1) or {}
      end
      local last = archived and gone[1] and call('ZSCORE', completed, gone[#gone])
      if last and tonumber(last) > archived then
        local lost = call('ZCOUNT', completed, format('(%.17g', archived), last)
        call('HINCRBY', prefix .. 'archive', 'lost', math.min(lost, #gone))
        call('HSET', prefix .. 'archive', 'lost-at', now)
      end
      for _, jid in ipairs(gone) do
        delete_complete(jid)
      end
      left = left or #gone == limit
    end
    return left
  end

  -- Forget at most `limit` workers that have been silent since `oldest`. Return whether any are left.
  local function forget(oldest, limit)
    local silent = call('ZRANGEBYSCORE', prefix .. 'workers', '-inf', oldest, 'LIMIT', 0, limit)
    for _, name in ipairs(silent) do
      call('UNLINK', prefix .. 'w:' .. name .. ':jobs')
      call('ZREM', prefix .. 'workers', name)
    end
    return #silent == limit
  end

  later_made = {release = release, link = link, stage = stage, relinked = relinked, unfail = unfail, step = step,
    expire = expire, delete_complete = delete_complete, forget = forget, note = note, enqueue_freed = enqueue_freed,
    unlinked = unlinked, state_of = state_of, failed_at = failed_at, pace = pace, pace_some = pace_some}
  return later_made
end
