-- Consequences of the end of a job: callbacks, the end of jobs that wait for it, and the progress of its groups.
--
-- o:<jid> is a hash next to the job:
--   success failure complete   callbacks: a JSON list of [jid, queue, klass, data, options]; data is a JSON object
--   policy, policy:<jid>       what becomes of this job if one for which it waits (any, or <jid>) fails: fail, skip,
--                              release; if neither is set, it keeps waiting, as with other cores
--   group                      the groups of which it is a member, separated by spaces
--   at ended                   when it was put; `failed` after that end was handled
--   blocked because list       of a job that failed without a run: the job that failed first, the one for which it waits,
--                              and the failure group
--   cursor                     where the next sweep continues to look at the jobs for which it waits
-- It belongs to the put whose entry in the history has `"outcome":true`. Another core that puts the job again adds an
-- entry without that, and so ends what the hash says.
--
-- A value that only something else than this core can have written counts as missing, so that no call of others fails.
--
-- g:<group> is a hash, g:<group>-jobs the list of its members in order, and g:<group>-failed a sorted set of those that
-- have failed, by the time. In dependencies, a group stands for all of its members: j:<group>-dependents are the jobs
-- that wait for it.
--   name at total done failed skipped canceled   state: open (members are added), running, complete, failed
--   success failure complete   callbacks of the group        reason   the member that failed first
--
-- outcomes is a sorted set of the jids with such a hash, by the time when the next sweep looks at them: jobs that other
-- cores end are found by it. open-groups and ended-groups hold groups that a client has not closed, and that expire.

-- Return a put of the history: its index, counted from the end, and its text, nil if there is none; and the length.
-- `skip`: the number of later puts.
local function last_put(jid, skip)
  local history = call('LRANGE', JOB .. jid .. '-history', 0, -1)
  for n = #history, 1, -1 do
    if find(history[n], '^%[%-?[%d.e+]+,"put",{"q":') then -- others may have logged the word
      if skip == 0 then
        return n - #history - 1, history[n], #history
      end
      skip = skip - 1
    end
  end
  return nil, nil, #history
end

-- Return whether the hash still belongs to the job, or with `skip` 1, whether it did before the last put. If the
-- history was cut, the marked entry may be gone.
local function bound(jid, skip)
  local index, entry, length = last_put(jid, skip or 0)
  if entry and find(entry, '"outcome":true', 1, true) then
    return true
  end
  return length == 0 or max_history > 0 and length >= max_history and (not index or index == -length)
end

-- End a job that is a member of one running group and has no callbacks, which most members are. Return false for any
-- other job: `ended` handles it.
local function end_member(jid)
  local key = prefix .. 'o:' .. jid
  local fields = redis.pcall('HMGET', key, 'group', 'ended', 'success', 'complete') -- others may write there
  local group = not fields.err and fields[1]
  if not group or fields[2] or fields[3] or fields[4] or find(group, ' ', 1, true) or not bound(jid) then
    return false
  end
  local group_key = prefix .. 'g:' .. group
  local counts = redis.pcall('HMGET', group_key, 'state', 'total', 'done', 'failed', 'skipped', 'canceled')
  local total = not counts.err and tonumber(counts[2])
  local left = total and total - 1
  for n = 3, 6 do
    left = left and left - (tonumber(counts[n] or 0) or left)
  end
  if counts[1] ~= 'running' or not left or left <= 0 then
    return false
  end
  call('HINCRBY', group_key, 'done', 1)
  call('DEL', key)
  call('ZREM', prefix .. 'outcomes', jid)
  return true
end

local outcomes_made
outcomes = function()
  if outcomes_made then
    return outcomes_made
  end
  local OUTCOME, GROUP, DUE = prefix .. 'o:', prefix .. 'g:', prefix .. 'outcomes'
  local FIRST_LOOK, LAST_LOOK, ABANDONED = 10, 600, 3600 -- seconds
  local CALLBACKS = 100 -- at most, for an end
  local POLICIES = {fail = true, skip = true, release = true, wait = true}
  local budget = STEP
  local ended, cascade, restored, check_group -- these call each other

  -- Return the seconds for which complete jobs are kept.
  local function life()
    local seconds = tonumber(call('HGET', prefix .. 'config', 'jobs-history')) or 604800
    return math.max(1, floor(math.min(seconds, 1e9)))
  end

  -- Return the reply of a command that reads a hash; false or an empty table if the key contains something else.
  local function read_hash(name, key, ...)
    local reply = redis.pcall(name, key, ...)
    return type(reply) == 'table' and reply.err and (name ~= 'HGET' and {}) or reply
  end

  local function fields_of(key)
    local list, fields = read_hash('HGETALL', key), {}
    for n = 1, #list, 2 do
      fields[list[n]] = list[n + 1]
    end
    return fields
  end

  local check_spec

  -- Check one callback of a list: before it is stored, or once it was. Return an error, or nil.
  local function refuse_callback(title, callback, stored)
    local jid, queue, klass, data, options = unpack(type(callback) == 'table' and callback or {}, 1, 5)
    for _, text in ipairs({jid or '', queue or '', klass or '', data or ''}) do
      if type(text) ~= 'string' or text == '' then
        return 'not a JSON list of [jid, queue, klass, data, options]'
      end
    end
    local valid, decoded = pcall(cjson.decode, data)
    if not valid or type(decoded) ~= 'table' or not find(data, '^%s*{') or decoded.outcome ~= nil then
      return 'has a callback whose data is not a JSON object without the name "outcome"'
    elseif options ~= nil and type(options) ~= 'table' then
      return 'has a callback whose options are not a JSON object'
    end
    for name, value in pairs(options or {}) do
      local number = tonumber(value)
      if name == 'tags' then
        valid = type(value) == 'table' and (#value > 0 or next(value) == nil)
        for _, tag in ipairs(valid and value or {}) do
          valid = valid and type(tag) == 'string'
        end
      elseif name == 'priority' or name == 'retries' or name == 'delay' then
        valid = number and number - number == 0
      elseif name == 'outcome' and not stored then
        check_spec(title, value)
      elseif name == 'outcome' then
        valid = type(value) == 'table'
        for field, content in pairs(valid and value or {}) do
          valid = valid and type(field) == 'string' and type(content) == 'string'
        end
      else
        valid = (name == 'txid' or name == 'request_id') and type(value) == 'string'
      end
      if not valid then
        return 'has a callback with the wrong option "' .. name .. '"'
      end
    end
  end

  -- Return the callbacks of a JSON list. Raises an error if it is not one.
  local function callbacks_of(title, name, text)
    local valid, callbacks = pcall(cjson.decode, text)
    local reason
    if not valid or type(callbacks) ~= 'table' or next(callbacks) ~= nil and #callbacks == 0 then
      reason = 'not a JSON list of [jid, queue, klass, data, options]'
    elseif #callbacks > CALLBACKS then
      reason = 'has more than ' .. CALLBACKS .. ' callbacks'
    end
    for _, callback in ipairs(not reason and callbacks or {}) do
      reason = reason or refuse_callback(title, callback)
    end
    return not reason and callbacks or error(title .. '(): Arg "' .. name .. '" ' .. reason .. ': ' .. text)
  end

  -- Check the object that the option `outcome` contains. `depends`: what the job will wait for.
  check_spec = function(title, spec, depends)
    if type(spec) ~= 'table' then
      error(title .. '(): Arg "outcome" not a JSON object')
    end
    for name, value in pairs(spec) do
      if type(name) ~= 'string' or type(value) ~= 'string' then
        error(title .. '(): Arg "outcome" is not an object of texts')
      elseif name == 'success' or name == 'failure' or name == 'complete' then
        callbacks_of(title, name, value)
      elseif name == 'policy' or find(name, '^policy:.') then
        if not POLICIES[value] then
          error(title .. '(): Arg "' .. name .. '" not one of fail, skip, release, wait: ' .. value)
        end
      elseif name == 'group' then
        local state = read_hash('HGET', GROUP .. value, 'state')
        if state ~= 'open' then
          error(title .. '(): Group ' .. value .. (state and ' is closed' or ' does not exist'))
        end
        for _, other in ipairs(depends or {}) do
          if other == value then
            error(title .. '(): The job would wait for its own group ' .. value)
          end
        end
      else
        error(title .. '(): Arg "outcome" has an unknown field: ' .. name)
      end
    end
  end

  -- Mark the last put of the job as the one to which the hash belongs.
  local function mark(jid)
    local index, entry = last_put(jid, 0)
    if index and not find(entry, '"outcome":true', 1, true) then
      call('LSET', JOB .. jid .. '-history', index, (string.gsub(entry, '}%]$', ',"outcome":true}]')))
    end
  end

  local function is_member(jid, group)
    return find(' ' .. (fields_of(OUTCOME .. jid).group or '') .. ' ', ' ' .. group .. ' ', 1, true)
  end

  local function add_to_group(jid, group)
    call('HINCRBY', GROUP .. group, 'total', 1)
    call('RPUSH', GROUP .. group .. '-jobs', jid)
  end

  local function each_group(groups, action)
    for group in string.gmatch(groups or '', '%S+') do
      action(group)
    end
  end

  -- Return a member's end to its group, or take it back (by = -1). Return whether the group exists.
  local function count_member(group, jid, state, by)
    local key = GROUP .. group
    if type(read_hash('HGET', key, 'state')) ~= 'string' then
      return false
    end
    redis.pcall('HINCRBY', key, state == 'complete' and 'done' or state, by)
    if state == 'failed' and by == 1 then
      redis.pcall('ZADD', key .. '-failed', 'NX', now, jid)
      call('HSETNX', key, 'reason', jid)
    elseif state == 'failed' then
      redis.pcall('ZREM', key .. '-failed', jid)
      if call('HGET', key, 'reason') == jid then
        local next_failed = redis.pcall('ZRANGE', key .. '-failed', 0, 0)[1]
        call('HDEL', key, 'reason')
        if next_failed then
          call('HSET', key, 'reason', next_failed)
        end
      end
    end
    return true
  end

  local function member_ended(group, jid, state)
    if count_member(group, jid, state, 1) then
      check_group(group, state == 'failed' or state == 'canceled')
    end
  end

  -- Return whether a failed job did so without a run: if not, another core has let it run since.
  local function is_blocked(jid)
    local blocked, list = unpack(read_hash('HMGET', OUTCOME .. jid, 'blocked', 'list'))
    return blocked and list
      and find(call('HGET', JOB .. jid, 'failure') or '', '"group":' .. encode(list) .. ',', 1, true)
  end

  -- Remove a job that failed without a run from its failure group.
  local function unblock(jid)
    local queue, failure = unpack(call('HMGET', JOB .. jid, 'queue', 'failure'))
    local list = call('HGET', OUTCOME .. jid, 'list')
    if not is_blocked(jid) then
      failure = list and '{"group":' .. encode(list) .. '}' or ''
    end
    call('HDEL', OUTCOME .. jid, 'blocked', 'because', 'list')
    lazy_helpers().unmark_failed(jid, failure, queue or '')
  end

  -- Let a job wait for no other; if these are many, in later calls.
  local function stop_waiting(jid)
    local key = JOB .. jid .. '-dependencies'
    local count = call('SCARD', key)
    if count > math.max(budget, 1) then
      later().link(jid, nil, 'u')
    elseif count > 0 then
      budget = budget - count
      for _, other in ipairs(call('SMEMBERS', key)) do
        call('SREM', JOB .. other .. '-dependents', jid)
      end
      call('DEL', key)
    end
  end

  -- Forget the hash of a job that was put again.
  local function drop(jid)
    local key = OUTCOME .. jid
    local groups, was, blocked = unpack(read_hash('HMGET', key, 'group', 'ended', 'blocked'))
    local state = blocked and call('HGET', JOB .. jid, 'state') or 'depends'
    if state ~= 'depends' and not (state == 'failed' and is_blocked(jid)) then
      stop_waiting(jid) -- another core has let it run
    end
    call('DEL', key)
    call('ZREM', DUE, jid)
    each_group(groups, function(group)
      if was == 'failed' then
        count_member(group, jid, 'failed', -1)
      end
      member_ended(group, jid, 'canceled')
    end)
  end

  -- Bind callbacks, policies and groups to the put that was just written.
  local function bind(jid, spec)
    if call('EXISTS', OUTCOME .. jid) == 1 then -- another core has deleted the job to which it belonged
      drop(jid)
    end
    if not next(spec) then
      return
    end
    local fields = {'at', now}
    for name, value in pairs(spec) do
      fields[#fields + 1], fields[#fields + 2] = name, value
    end
    for n = 1, #fields, 1000 do
      call('HSET', OUTCOME .. jid, unpack(fields, n, math.min(n + 999, #fields)))
    end
    call('ZADD', DUE, now + FIRST_LOOK, jid)
    mark(jid)
    if spec.group then
      add_to_group(jid, spec.group)
    end
  end

  -- Handle an end that another core has caused, before the job is put again.
  local function missed(jid, state)
    if call('EXISTS', OUTCOME .. jid) == 0 then
      return
    end
    local result = state == 'complete' and read_hash('HGET', prefix .. 'x:' .. jid, 'result')
    ended(jid, state, result and pcall(cjson.decode, result) and result or nil)
  end

  -- Make a job that exists already a member of a group.
  local function join(jid, group, state)
    if call('EXISTS', OUTCOME .. jid) == 1 then
      if not bound(jid) then
        drop(jid)
      elseif state == 'complete' or state == 'failed' then
        missed(jid, state)
      end
    end
    add_to_group(jid, group)
    if state == 'complete' then
      return call('HINCRBY', GROUP .. group, 'done', 1)
    end
    local former = call('HGET', OUTCOME .. jid, 'group')
    call('HSET', OUTCOME .. jid, 'group', (former and former .. ' ' or '') .. group)
    call('HSETNX', OUTCOME .. jid, 'at', now)
    call('ZADD', DUE, now + FIRST_LOOK, jid)
    mark(jid)
    if state == 'failed' then
      call('HSET', OUTCOME .. jid, 'ended', 'failed')
      member_ended(group, jid, 'failed')
    end
  end

  -- Put a new job: a callback.
  local function put_callback(callback, outcome)
    local jid, queue, klass, data, options = unpack(callback, 1, 5)
    options = options or {}
    if call('EXISTS', JOB .. jid) == 1 then -- from an earlier end
      local taken, free = 1, 2
      while call('EXISTS', JOB .. jid .. '-' .. free) == 1 do
        taken, free = free, 2 * free
      end
      while free - taken > 1 do
        local middle = floor((taken + free) / 2)
        local is_taken = call('EXISTS', JOB .. jid .. '-' .. middle) == 1
        taken, free = is_taken and middle or taken, is_taken and free or middle
      end
      jid = jid .. '-' .. free
    end
    local rest = string.match(data, '^%s*{%s*(.*)$')
    data = '{"outcome":' .. outcome .. (find(rest, '^}') and '' or ',') .. rest
    call('DEL', JOB .. jid .. '-dependencies', JOB .. jid .. '-history', prefix .. 'x:' .. jid)
    local tags, priority, retries = options.tags or {}, tonumber(options.priority) or 0, tonumber(options.retries) or 5
    local delay, name = tonumber(options.delay) or 0, encode(queue)
    call('PUBLISH', prefix .. 'log', '{"event":"put","jid":' .. encode(jid) .. ',"queue":' .. name .. '}')
    append_history(jid, moment, '"put"', '"q":' .. name, true)
    if is_indexed(klass) then
      note_job(jid)
    end
    lazy_helpers().tag(jid, tags, 1)
    call('HSET', JOB .. jid, 'jid', jid, 'klass', klass, 'data', data, 'priority', priority, 'tags',
      tags[1] and encode(tags) or '{}', 'state', delay > 0 and 'scheduled' or 'waiting', 'worker', '', 'expires', 0,
      'queue', queue, 'retries', retries, 'remaining', retries, 'time', format('%.20f', now))
    if options.txid then
      call('HSET', JOB .. jid, 'txid', tostring(options.txid))
    end
    if options.request_id then
      call('HSET', JOB .. jid, 'request_id', tostring(options.request_id))
    end
    if delay > 0 then
      call('ZADD', QUEUE .. queue .. '-scheduled', now + delay, jid)
    else
      call('ZADD', QUEUE .. queue .. '-work', priority - now / 10000000000, jid)
    end
    call('ZADD', prefix .. 'queues', 'NX', now, queue)
    call('PUBLISH', prefix .. 'wake:' .. queue, now + delay)
    if options.outcome then
      local spec = options.outcome
      local state = spec.group and read_hash('HGET', GROUP .. spec.group, 'state')
      if state ~= 'open' and state ~= 'running' then
        spec.group = nil
      end
      bind(jid, spec)
    end
    return jid
  end

  -- Put the callbacks of an end.
  local function fire(state, outcome, fields)
    local jids = {}
    for _, text in ipairs({state == 'complete' and fields.success or state == 'failed' and fields.failure or '[]',
      fields.complete or '[]'}) do
      local valid, callbacks = pcall(cjson.decode, text)
      for _, callback in ipairs(valid and type(callbacks) == 'table' and callbacks or {}) do
        if not refuse_callback('Outcome', callback, true) then
          jids[#jids + 1] = put_callback(callback, outcome)
        end
      end
    end
    return jids
  end

  -- Return why jobs that wait for a job or a group may end: `failed`, `skipped`, `gone`; nil if they keep waiting. The
  -- second value: whether it has ended.
  local function cause_of(jid)
    local state = call('HGET', JOB .. jid, 'state')
    if state then
      local skipped = state == 'complete' and read_hash('HGET', prefix .. 'x:' .. jid, 'skipped')
      return state == 'failed' and state or skipped and 'skipped' or nil, true
    end
    local group = read_hash('HMGET', GROUP .. jid, 'state', 'failed', 'canceled')
    if not group[1] then
      return 'gone', true
    end
    local broken = group[1] == 'failed' or (tonumber(group[2]) or 0) + (tonumber(group[3]) or 0) > 0
    return broken and 'failed' or nil, group[1] == 'failed' or group[1] == 'complete'
  end

  -- Return the first 300 bytes of the last line of a failure's message.
  local function last_line(failure)
    local valid, decoded = pcall(cjson.decode, failure or '')
    local message = valid and type(decoded) == 'table' and type(decoded.message) == 'string' and decoded.message or ''
    local line = string.match(string.sub(message, -2000), '([^\n]*)%s*$') or ''
    line = string.gsub(line, '^[\128-\191]+', '') -- no part of a character
    return #line > 300 and string.gsub(string.sub(line, 1, 300), '[\192-\255]?[\128-\191]*$', '') .. '…' or line
  end

  -- Fail a job that waits for `other`.
  local function fail_waiting(jid, other, cause)
    local queue = call('HGET', JOB .. jid, 'queue')
    local root = read_hash('HGET', OUTCOME .. other, 'blocked') or read_hash('HGET', GROUP .. other, 'reason') or other
    root = read_hash('HGET', OUTCOME .. root, 'blocked') or root
    local klass, failure = unpack(call('HMGET', JOB .. root, 'klass', 'failure'))
    local message = 'This job did not run, because it depends on ' .. root .. (klass and ' (' .. klass .. ')' or '')
      .. (cause == 'gone' and ', which does not exist any more.' or klass and ', which failed: ' .. last_line(failure)
      or ', which failed.')
    local group = queue .. '-DependencyFailed'
    call('ZREM', QUEUE .. queue .. '-depends', jid)
    call('HSET', OUTCOME .. jid, 'blocked', root, 'because', other, 'list', group)
    call('PUBLISH', prefix .. 'log', '{"event":"failed","jid":' .. encode(jid) .. ',"worker":"","group":'
      .. encode(group) .. ',"message":' .. encode(message) .. '}')
    if call('ZSCORE', prefix .. 'tracked', jid) then
      call('PUBLISH', prefix .. 'failed', jid)
    end
    lazy_helpers().mark_failed(jid, queue, group, message, moment, '', nil, true)
  end

  -- End a job that waits for `other` as complete, without a run.
  local function skip_waiting(jid, other)
    local key = JOB .. jid
    local queue = call('HGET', key, 'queue')
    call('ZREM', QUEUE .. queue .. '-depends', jid)
    stop_waiting(jid)
    append_history(jid, moment, '"skipped"', '"because":' .. encode(other))
    call('HDEL', key, 'scheduled')
    call('HSET', key, 'state', 'complete', 'worker', '', 'failure', '{}', 'queue', '', 'expires', 0,
      'time', format('%.20f', now))
    call('ZADD', prefix .. 'completed', now, jid)
    call('HSET', prefix .. 'x:' .. jid, 'result', 'null', 'skipped', 1)
    call('EXPIRE', prefix .. 'x:' .. jid, life() + 86400)
    call('PUBLISH', prefix .. 'log', '{"event":"skipped","jid":' .. encode(jid) .. ',"queue":' .. encode(queue) .. '}')
    if call('ZSCORE', prefix .. 'tracked', jid) then
      call('PUBLISH', prefix .. 'completed', jid)
    end
    ended(jid, 'skipped')
  end

  -- Handle that another core has let a failed job run again: if it was blocked, it does not wait for others any more.
  local function ran_elsewhere(jid, blocked)
    if blocked then
      unblock(jid)
      if call('HGET', JOB .. jid, 'state') ~= 'depends' then
        stop_waiting(jid)
      end
    end
    restored(jid)
  end

  -- Return the policy of a job for a failure of `other`.
  local function policy_of(jid, other)
    local policies = read_hash('HMGET', OUTCOME .. jid, 'policy:' .. other, 'policy')
    local policy = policies[1] or policies[2] or 'wait'
    return policy ~= 'wait' and POLICIES[policy] and bound(jid) and policy or 'wait'
  end

  -- Do to a job that waits for `other` what its policy says, if `other` has failed, was skipped or is gone. `cause`: if
  -- it is known.
  local function apply(jid, other, cause)
    local has_ended = cause
    if not cause then
      cause, has_ended = cause_of(other)
    end
    if not cause or call('HGET', JOB .. jid, 'state') ~= 'depends'
      or call('SISMEMBER', JOB .. jid .. '-dependencies', other) == 0 then
      return
    end
    local policy = policy_of(jid, other)
    if policy == 'wait' or policy == 'release' then
      if has_ended and (policy == 'release' or cause == 'skipped') then
        call('SREM', JOB .. other .. '-dependents', jid)
        later().unlinked(jid, other, now)
      end
    elseif policy == 'skip' or cause == 'skipped' then
      skip_waiting(jid, other)
    else
      fail_waiting(jid, other, cause)
    end
  end

  -- Return those that have ended badly of the jobs for which a job waits, with causes in turn: of at most `budget` jobs
  -- from a cursor on. The second value: the next cursor, or '0'.
  local function causes_of(jid, cursor)
    local page = call('SSCAN', JOB .. jid .. '-dependencies', cursor or '0', 'COUNT', math.max(1, budget))
    local causes, pending = {}, nil
    budget = budget - #page[2]
    for _, other in ipairs(page[2]) do
      local cause = cause_of(other)
      if cause == 'gone' and pending == nil then
        pending = call('EXISTS', prefix .. 'pending') == 1 -- a task may still release what waits for a job that is gone
      end
      if cause and not (cause == 'gone' and pending) then
        causes[#causes + 1], causes[#causes + 2] = other, cause
      end
    end
    return causes, page[1]
  end

  -- Look at the jobs for which a job waits; at most `budget` from a cursor on. Return the next cursor, or '0'.
  local function examine(jid, cursor)
    local causes, next_cursor = causes_of(jid, cursor)
    for n = 1, #causes, 2 do
      apply(jid, causes[n])
    end
    return next_cursor
  end

  -- Let a job that failed because of others wait again. Return nil if it has not failed for that reason.
  local function wait_again(jid)
    local job = call('HMGET', JOB .. jid, 'state', 'queue')
    if job[1] == 'failed' and is_blocked(jid) then
      append_history(jid, moment, '"waits again"')
      unblock(jid)
      call('HSET', JOB .. jid, 'state', 'depends', 'failure', '{}')
      call('ZADD', QUEUE .. job[2] .. '-depends', now, jid)
      restored(jid)
      if call('SCARD', JOB .. jid .. '-dependencies') == 0 then
        later().enqueue_freed(jid, now)
      else
        examine(jid)
      end
      return true
    end
  end

  -- Let a job wait again, unless any of the jobs for which it waits would let it fail again.
  local function wait_unless_failing(jid)
    local because = call('HGET', OUTCOME .. jid, 'because')
    local cause = because and call('SISMEMBER', JOB .. jid .. '-dependencies', because) == 1 and cause_of(because)
    local causes = cause and {because, cause} or causes_of(jid)
    for n = 1, #causes, 2 do
      if policy_of(jid, causes[n]) == 'fail' and causes[n + 1] ~= 'skipped' then
        local root = read_hash('HGET', OUTCOME .. causes[n], 'blocked') or causes[n]
        call('HSET', OUTCOME .. jid, 'blocked', root, 'because', causes[n])
        return
      end
    end
    wait_again(jid)
  end

  -- Let a job that waits for `other` follow its state: end if that has failed, wait again if it has another try.
  local function follow(jid, other, cause)
    local state = call('HGET', JOB .. jid, 'state')
    if state == 'depends' then
      apply(jid, other, cause)
    elseif state == 'failed' and is_blocked(jid)
      and call('SISMEMBER', JOB .. jid .. '-dependencies', other) == 1 and not cause_of(other) then
      wait_unless_failing(jid)
    end
  end

  -- Let the jobs follow that wait for a job or a group; if they are many, in later calls. The task looks at all members
  -- of the set, with a cursor, so one is enough, and it begins again if anything has changed.
  cascade = function(jid, state)
    local key = JOB .. jid .. '-dependents'
    local count = call('SCARD', key)
    if count > math.max(budget, 0) then
      local kind = state == 'skipped' and 'k' or 'f'
      if call('ZSCORE', prefix .. 'pending', kind .. ':0:' .. jid) then
        call('DEL', prefix .. 'p:' .. kind .. ':0:' .. jid)
      else
        later().note(kind, jid)
      end
    elseif count > 0 then
      budget = budget - count
      for _, other in ipairs(call('SMEMBERS', key)) do
        follow(other, jid)
      end
    end
  end

  -- Continue a task of the kind `f`, or `k`, if the job was skipped. Return whether anything is left.
  local function some(kind, key, jid, limit)
    local cause
    if kind == 'k' then
      cause = cause_of(jid)
      cause = (cause == 'skipped' or cause == 'gone') and 'skipped' -- or else it was put again
    end
    local page = call('SSCAN', JOB .. jid .. '-dependents', call('GET', key) or '0', 'COUNT',
      math.ceil(limit / 2)) -- a failure takes twice as long as other steps
    budget = STEP
    for _, other in ipairs((kind == 'f' or cause) and page[2] or {}) do
      follow(other, jid, cause)
    end
    if page[1] == '0' then
      call('DEL', key)
      return false
    end
    call('SET', key, page[1])
    return true
  end

  -- Keep a group that has ended for as long as complete jobs.
  local function keep_ended(group)
    for _, suffix in ipairs({'', '-jobs', '-failed'}) do
      call('EXPIRE', GROUP .. group .. suffix, life() + 86400)
    end
    call('ZADD', prefix .. 'ended-groups', now + life(), group)
  end

  -- End a group if all of its members have ended. `broken`: one has just failed or was canceled.
  check_group = function(group, broken)
    local key = GROUP .. group
    local names = {'done', 'failed', 'skipped', 'canceled'}
    local stored = read_hash('HMGET', key, 'state', 'total', 'incomplete', unpack(names))
    local counts, sum, total = {}, 0, tonumber(stored[2]) or 0
    for n, name in ipairs(names) do
      counts[name] = tonumber(stored[n + 3]) or 0
      sum = sum + counts[name]
    end
    if stored[1] ~= 'running' or sum < total then
      if broken and counts.failed + counts.canceled == 1 then
        cascade(group)
      end
      return
    end
    local fields = fields_of(key)
    local state = (counts.failed + counts.canceled > 0 or stored[3]) and 'failed' or 'complete'
    call('HSET', key, 'state', state, 'ended', now)
    keep_ended(group)
    local outcome = '{"group":' .. encode(group) .. ',"name":' .. encode(fields.name or '') .. ',"state":"' .. state
      .. '","total":' .. total .. ',"done":' .. counts.done .. ',"failed":' .. counts.failed .. ',"skipped":'
      .. counts.skipped .. ',"canceled":' .. counts.canceled .. ',"reason":' .. encode(fields.reason or false) .. '}'
    fire(state, outcome, fields)
    if state == 'complete' then
      later().release(group)
    else
      cascade(group)
    end
  end

  -- Handle the end of a job: `complete`, `failed`, `skipped` or `canceled`. `result`: JSON, if it is known. `klass`: the
  -- class of a job that is deleted already.
  ended = function(jid, state, result, klass)
    local key = OUTCOME .. jid
    local fields = fields_of(key)
    if next(fields) and not bound(jid) then
      drop(jid)
    elseif next(fields) and fields.ended ~= state then
      if fields.ended == 'failed' and state == 'canceled' then
        each_group(fields.group, function(group)
          count_member(group, jid, 'failed', -1)
        end)
      elseif fields.ended == 'failed' then
        ran_elsewhere(jid, fields.blocked)
      end
      if state == 'failed' then
        call('HSET', key, 'ended', state)
        call('ZADD', DUE, now + LAST_LOOK, jid)
      else
        call('DEL', key)
        call('ZREM', DUE, jid)
      end
      if fields.success or fields.failure or fields.complete then
        local job = call('HMGET', JOB .. jid, 'klass', 'failure')
        local failure = state == 'failed' and pcall(cjson.decode, job[2] or '') and job[2] or 'null'
        local outcome = '{"jid":' .. encode(jid) .. ',"klass":' .. encode(klass or job[1]) .. ',"state":"' .. state
          .. '","failure":' .. failure .. ',"result":' .. (result or 'null') .. '}'
        for _, callback in ipairs(fire(state, outcome, fields)) do
          if job[1] then
            append_history(jid, moment, '"callback"', '"jid":' .. encode(callback))
          end
        end
      end
      each_group(fields.group, function(group)
        member_ended(group, jid, state)
      end)
    end
    if state == 'failed' or state == 'skipped' then
      cascade(jid, state)
    end
  end

  -- Handle that a failed job or group has another try: what failed because of it waits again.
  restored = function(jid)
    local groups, was = unpack(read_hash('HMGET', OUTCOME .. jid, 'group', 'ended'))
    if was == 'failed' then
      call('HDEL', OUTCOME .. jid, 'ended', 'blocked', 'because', 'list')
      call('ZADD', DUE, now + FIRST_LOOK, jid)
      each_group(groups, function(group)
        if not count_member(group, jid, 'failed', -1) then
          return
        end
        local group_key = GROUP .. group
        if call('HGET', group_key, 'state') == 'failed' then
          call('HSET', group_key, 'state', 'running')
          call('HDEL', group_key, 'ended')
          for _, suffix in ipairs({'', '-jobs', '-failed'}) do
            call('PERSIST', group_key .. suffix)
          end
          call('ZREM', prefix .. 'ended-groups', group)
        end
        if not cause_of(group) then
          cascade(group)
        end
      end)
    end
    cascade(jid)
  end

  -- Handle a put of a job that has a hash. `again`: the same job runs again, so its callbacks stay.
  local function put_again(jid, again)
    if call('EXISTS', OUTCOME .. jid) == 1 then
      if again and bound(jid, 1) then
        mark(jid)
      else
        drop(jid)
      end
    end
  end

  -- Handle that a job was canceled, which had a hash: `was_bound` to it, if that was so.
  local function canceled(jid, klass, was_bound)
    if was_bound then
      ended(jid, 'canceled', nil, klass)
    else
      drop(jid)
    end
  end

  -- Look at a job whose end this core may have missed. Return whether it waits for more than one call can look at.
  local function look_at(jid)
    local state = call('HGET', JOB .. jid, 'state')
    local stored = read_hash('HMGET', OUTCOME .. jid, 'ended', 'at', 'blocked', 'cursor')
    local was, at, blocked, cursor = unpack(stored, 1, 4)
    local age = now - (tonumber(at) or now)
    if not stored[1] and call('EXISTS', OUTCOME .. jid) == 0 or stored[1] == nil then
      call('ZREM', DUE, jid)
      return false
    end
    call('ZADD', DUE, now + math.max(FIRST_LOOK, math.min(age / 2, LAST_LOOK)), jid)
    if not state then
      ended(jid, 'canceled')
    elseif state == 'complete' then
      missed(jid, state)
    elseif state == 'failed' and was ~= 'failed' then
      ended(jid, 'failed')
    elseif not bound(jid) then
      drop(jid)
      if state == 'depends' then
        examine(jid) -- one for which it waits may have been skipped while this one had failed
      end
    elseif was == 'failed' and state ~= 'failed' then
      ran_elsewhere(jid, blocked)
    elseif state == 'failed' and blocked and is_blocked(jid) then
      wait_unless_failing(jid)
    elseif state == 'failed' and blocked then
      ran_elsewhere(jid, blocked)
      ended(jid, 'failed')
    elseif state == 'depends' then
      local next_cursor = examine(jid, tonumber(cursor) and cursor)
      if call('HGET', JOB .. jid, 'state') == 'depends' then
        if next_cursor ~= '0' then
          call('HSET', OUTCOME .. jid, 'cursor', next_cursor)
          call('ZADD', DUE, now, jid)
          return true
        elseif cursor then
          call('HDEL', OUTCOME .. jid, 'cursor')
        end
      end
    end
  end

  -- Look at jobs whose end this core may have missed, and at groups that were never closed, or have expired; at most
  -- `limit` of each. Return whether any are left.
  local function sweep(limit)
    local due = call('ZRANGEBYSCORE', DUE, '-inf', now, 'LIMIT', 0, limit)
    local left = #due == limit
    for _, jid in ipairs(due) do
      left = look_at(jid) or left
      if budget <= 0 then
        left = true
        break
      end
    end
    local abandoned = call('ZRANGEBYSCORE', prefix .. 'open-groups', '-inf', now - ABANDONED, 'LIMIT', 0, limit)
    for _, group in ipairs(abandoned) do
      local newest = call('LINDEX', GROUP .. group .. '-jobs', -1)
      local at = newest and tonumber(call('HGET', JOB .. newest, 'time')) or 0
      if at > now - ABANDONED then
        call('ZADD', prefix .. 'open-groups', math.min(at, now), group)
      else
        call('ZREM', prefix .. 'open-groups', group)
        if read_hash('HGET', GROUP .. group, 'state') == 'open' then
          call('HSET', GROUP .. group, 'state', 'running', 'incomplete', 1)
          check_group(group)
        end
      end
    end
    local expired = call('ZRANGEBYSCORE', prefix .. 'ended-groups', '-inf', now, 'LIMIT', 0, limit)
    for _, group in ipairs(expired) do
      if call('EXISTS', JOB .. group .. '-dependents') == 1 then -- a failed member may be retried yet
        keep_ended(group)
      else
        call('ZREM', prefix .. 'ended-groups', group)
        call('ZREM', prefix .. 'groups', group)
        call('UNLINK', GROUP .. group, GROUP .. group .. '-jobs', GROUP .. group .. '-failed')
      end
    end
    return left or #abandoned == limit or #expired == limit
  end

  outcomes_made = {check_spec = check_spec, callbacks_of = callbacks_of, bind = bind, join = join, missed = missed,
    is_member = is_member, ended = ended, restored = restored, wait_again = wait_again, put_again = put_again,
    apply = apply, examine = examine, policy_of = policy_of, check_group = check_group, some = some,
    canceled = canceled, sweep = sweep, fields_of = fields_of}
  return outcomes_made
end
