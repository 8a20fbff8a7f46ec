-- What commands do now and then.

-- Makes these functions, when one of them is needed:
--   lock_lost  tag  link  refuse_cycle  unsink  expire_stats  count  failure  sink  bring_due
local function seldom()
  local function lock_lost(jid, worker)
    local payload = '{"event":"lock_lost","jid":' .. encode(jid) .. ',"worker":' .. encode(worker) .. '}'
    call('PUBLISH', prefix .. 'w:' .. worker, payload)
    call('PUBLISH', prefix .. 'log', payload)
  end

  -- Add a job to the index of tags (by = 1), or take it away (by = -1). `tags`: a list, or what the field `tags` has.
  local function tag(jid, tags, by)
    if type(tags) == 'string' then
      tags = #tags > 2 and cjson.decode(tags)
    end
    for _, name in ipairs(tags or {}) do
      local key, strict = prefix .. 't:' .. name, fixed('tag-counts')
      local changed = by == 1 and call('ZADD', key, now, jid) or by == -1 and call('ZREM', key, jid)
      if changed == 1 or not strict then
        local count = call('ZINCRBY', prefix .. 'tags', by, name)
        if strict and tonumber(count) <= 0 then
          call('ZREM', prefix .. 'tags', name)
        end
      end
    end
  end

  -- Let a job wait for others: for those that exist and are not complete, and for itself, as the original core does.
  -- With `off`: not any more.
  local function link(jid, others, off)
    for _, other in ipairs(others) do
      local state = off or other == jid or call('HGET', JOB .. other, 'state')
      if state and state ~= 'complete' then
        call(off and 'SREM' or 'SADD', JOB .. jid .. '-dependencies', other)
        call(off and 'SREM' or 'SADD', JOB .. other .. '-dependents', jid)
      end
    end
  end

  -- Refuse what would make a job wait for itself, where that is mended. `planned`: dependencies not yet written, by
  -- jid.
  local function refuse_cycle(title, jid, others, planned)
    if not others[1] or not fixed('cycles') then
      return
    end
    local seen, left = {}, {unpack(others)}
    while left[1] do
      local other = table.remove(left)
      if other == jid then
        error(title .. '(): Job ' .. jid .. ' would wait for itself')
      elseif not seen[other] then
        seen[other] = true
        for _, list in ipairs({call('SMEMBERS', JOB .. other .. '-dependencies'), planned and planned[other]}) do
          for _, another in ipairs(list) do
            left[#left + 1] = another
          end
        end
      end
    end
  end

  -- Take a failed job out of its group, and out of the statistics of a queue.
  local function unsink(jid, failure, queue)
    local fine, about = pcall(cjson.decode, failure or '')
    local group = fine and type(about) == 'table' and about.group
    if group then
      local key, at = prefix .. 'f:' .. group, tonumber(about.when)
      call('LREM', key, 0, jid)
      if call('EXISTS', key) == 0 then
        call('SREM', prefix .. 'failures', group)
      end
      if at then
        call('HINCRBY', prefix .. 's:stats:' .. at - at % 86400 .. ':' .. queue, 'failed', -1)
      end
    end
  end

  -- Days of statistics are kept as long as configured. Called at the first and at each hundredth write to a hash, so
  -- that those of another core are kept no longer.
  local function expire_stats(key, ...)
    if fixed('stats-expiry') then
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

  -- Make a job a failed one. `extra` is what the history tells besides the group, `at` and `worker` what the failure
  -- tells.
  local function sink(jid, queue, group, message, at, worker, extra)
    happened(jid, moment, '"failed"', '"group":' .. encode(group) .. (extra or ''))
    call('HSET', JOB .. jid, 'state', 'failed', 'worker', '', 'expires', '',
      'failure', failure(group, message, at, worker))
    call('SADD', prefix .. 'failures', group)
    call('LPUSH', prefix .. 'f:' .. group, jid)
    count(queue, 'failures')
    count(queue, 'failed')
  end

  -- Let at most `count` jobs of a queue that are due wait (-1: all): with `spawning` those that recurring jobs spawn
  -- now, at most so many, and then the scheduled ones.
  local function bring_due(queue, count, spawning)
    local work = QUEUE .. queue .. '-work'
    if spawning then
      local made, place = 0, QUEUE .. queue .. '-recur'
      local found = call('ZRANGEBYSCORE', place, 0, now, 'WITHSCORES', 'LIMIT', 0, count)
      for n = 1, #found, 2 do
        local parent, due = found[n], tonumber(found[n + 1])
        local job = call('HMGET', prefix .. 'r:' .. parent, 'interval', 'backlog', 'klass', 'data', 'priority', 'tags',
          'retries')
        local interval, backlog, tags = tonumber(job[1]) or 0, tonumber(job[2]) or 0, job[6] or '{}'
        if interval <= 0 then -- nothing that this or another core wrote
          call('ZREM', place, parent)
          due = now + 1
        elseif interval % 1 == 0 or not fixed('recur-fraction') then
          due = floor(due)
        end
        local late = (now - due) / interval
        if backlog ~= 0 and late > backlog then
          due = due + math.ceil(late - backlog) * interval
        end
        while due <= now and made < count do
          local jid
          repeat -- declared anew after unrecur, the count begins anew, and older children may be there
            jid = parent .. '-' .. call('HINCRBY', prefix .. 'r:' .. parent, 'count', 1)
          until call('EXISTS', JOB .. jid) == 0 or not fixed('spawn-jid')
          tag(jid, tags, 1)
          call('HSET', JOB .. jid, 'jid', jid, 'klass', job[3], 'data', job[4], 'priority', job[5], 'tags', tags,
            'state', 'waiting', 'worker', '', 'expires', 0, 'queue', queue, 'retries', job[7], 'remaining', job[7],
            'time', format('%.20f', due), 'spawned_from_jid', parent)
          happened(jid, floor(due), '"put"', '"q":' .. encode(queue), true)
          call('ZADD', work, (tonumber(job[5]) or 0) - due / 10000000000, jid)
          due = due + interval
          call('ZADD', place, due, parent)
          made = made + 1
        end
      end
    end
    local place = QUEUE .. queue .. '-scheduled'
    for _, jid in ipairs(call('ZRANGEBYSCORE', place, 0, now, 'LIMIT', 0, count)) do
      local priority = call('HGET', JOB .. jid, 'priority')
      call('ZREM', place, jid)
      if priority then
        call('ZADD', work, (tonumber(priority) or 0) - now / 10000000000, jid)
        call('HSET', JOB .. jid, 'state', 'waiting')
      end
    end
  end

  return {lock_lost = lock_lost, tag = tag, link = link, refuse_cycle = refuse_cycle, unsink = unsink,
    expire_stats = expire_stats, count = count, failure = failure, sink = sink, bring_due = bring_due}
end
