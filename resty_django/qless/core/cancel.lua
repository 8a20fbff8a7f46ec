-- cancel  jid ...
--   Deletes jobs. Complete jobs are left alone. A job on which others depend is only canceled together with these.
--   Reply: list of the jids
-- expire  failed|complete, and for each of at most 100 jobs, oldest first: jid when
--   Deletes the jobs that have been in this state since `when`, as `oldest` returns it. Failed jobs stay if others wait
--   for them or their groups, or if their failure group is being retried. Other clients see canceled jobs, but no
--   callbacks follow, and groups still count the jobs as failed.
--   Reply: integer: number of jobs deleted
-- priority  jid number
--   Changes the priority. A waiting job goes ahead of all others with the new priority, unless `fixes` is `all`.
--   Reply: integer: the priority
-- depends  jid on jid ...
--   Adds dependencies to a job that already waits for others.
--   Reply: 1
-- depends  jid off jid ...|all
--   Removes dependencies. A job with none left waits in its queue.
--   Reply: 1
-- stage  jid jid ...
--   Stages dependencies, in as many calls as necessary: the next put of the first job with `staged` makes it wait for
--   the others. They expire after an hour.
--   Reply: integer: number of staged jobs
-- log  jid message [object]
--   Appends an entry to the history.
--   Reply: nil
-- Cost  one step for each job, and for each tag and dependency of a canceled job
-- While workers write an archive, `canceled` lists up to 10 000 canceled jobs for it, as JSON {at, job}; see
-- archive/marks.py.
local MAX_CANCELED, MAX_CANCELED_DATA = 10000, 65536

-- Return the failure group of a failed job, the time of the failure, and the queue.
local function failure_of(jid)
  local state, failure, queue = unpack(call('HMGET', JOB .. jid, 'state', 'failure', 'queue'))
  local valid, decoded = pcall(cjson.decode, failure or '')
  if state == 'failed' and valid and type(decoded) == 'table' then
    return tostring(decoded.group), tonumber(decoded.when), queue
  end
end

-- Save a canceled job for the archive.
local function save(jid)
  local job = read(jid, true)
  job[DATA] = #(job[DATA] or '') > MAX_CANCELED_DATA and 'null' or job[DATA]
  local valid, text = pcall(job_json, jid, job) -- another client may have written anything
  if not valid or call('LLEN', prefix .. 'canceled') >= MAX_CANCELED then
    call('HINCRBY', prefix .. 'archive', 'lost', 1)
    call('HSET', prefix .. 'archive', 'lost-at', now)
  else
    call('RPUSH', prefix .. 'canceled', '{"at":' .. format('%.6f', now) .. ',"job":' .. text .. '}')
  end
end

-- Delete a job unless it is complete. `ended`: a list to which jobs with consequences are added; nil: without any.
local function cancel(jid, archived, ended)
  local key = JOB .. jid
  local job = call('HMGET', key, 'state', 'worker', 'queue', 'failure', 'tags', 'klass')
  local state, worker, queue = job[1], job[2], job[3]
  if state == 'complete' or (not state and fixes ~= 'none') then
    return
  end
  local payload = '{"event":"canceled","jid":' .. encode(jid) .. ',"worker":' .. encode(worker) .. ',"queue":'
    .. encode(queue) .. '}'
  call('PUBLISH', prefix .. 'log', payload)
  if worker and worker ~= '' then
    call('PUBLISH', prefix .. 'w:' .. worker, payload)
    call('ZREM', prefix .. 'w:' .. worker .. ':jobs', jid)
  end
  if not state then
    return
  end
  if archived then
    save(jid)
  end
  for _, suffix in ipairs({'-work', '-locks', '-scheduled', '-depends'}) do
    call('ZREM', QUEUE .. queue .. suffix, jid)
  end
  if call('SCARD', key .. '-dependencies') > STEP then
    later().link(jid, nil, 'u')
  else
    for _, other in ipairs(call('SMEMBERS', key .. '-dependencies')) do
      call('SREM', JOB .. other .. '-dependents', jid)
    end
  end
  if state == 'failed' then
    lazy_helpers().unmark_failed(jid, job[4], queue)
  end
  lazy_helpers().tag(jid, job[5], -1)
  if call('ZSCORE', prefix .. 'tracked', jid) then
    call('PUBLISH', prefix .. 'canceled', jid)
    if fixes == 'all' then
      call('ZREM', prefix .. 'tracked', jid)
    end
  end
  if ended and call('EXISTS', prefix .. 'o:' .. jid) == 1 then
    ended[#ended + 1] = {jid, job[6], bound(jid)}
  end
  lazy_helpers().unindex(jid)
  call('DEL', key, key .. '-dependencies', key .. '-history', prefix .. 'x:' .. jid)
end

if command == 'cancel' then
  need('Cancel', 'jid', ARGV[3])
  settings()
  local jids, canceled = arguments(3)
  local pending = call('EXISTS', prefix .. 'pending') == 1 -- if so, the list may contain jobs that no longer wait
  for _, jid in ipairs(jids) do -- if there are more dependents than arguments, at least one is not an argument
    local key = JOB .. jid .. '-dependents'
    for _, other in ipairs(pending and call('SMEMBERS', key) or call('SRANDMEMBER', key, #ARGV)) do
      if not canceled[other] and (not pending or call('SISMEMBER', JOB .. other .. '-dependencies', jid) == 1) then
        error('Cancel(): ' .. jid .. ' is a dependency of ' .. other .. ' but is not mentioned to be canceled')
      end
    end
  end
  local seen, ended = tonumber((call('HGET', prefix .. 'archive', 'at'))), {}
  for _, jid in ipairs(jids) do
    cancel(jid, seen and now - seen < 86400, ended)
  end
  for _, known in ipairs(ended) do
    outcomes().canceled(unpack(known))
  end
  lazy_helpers().remove_from_groups()
  mark_once()
  return jids
end

if command == 'expire' then
  local failed, deleted = need('Expire', 'state', ARGV[3]) == 'failed', 0
  if not failed and ARGV[3] ~= 'complete' or #ARGV % 2 == 0 or #ARGV > 203 then
    error('Expire(): Args are not "failed" or "complete", and the jids and times of at most 100 jobs')
  end
  for n = 5, #ARGV, 2 do
    need('Expire', 'when', ARGV[n], 'number')
  end
  settings()
  for n = #ARGV - 1, 4, -2 do -- newest first: jobs that fail because of one fail after it
    local jid, at = ARGV[n], tonumber(ARGV[n + 1])
    local key, group, since = prefix .. 'o:' .. jid, failure_of(jid)
    local holders, groups = {prefix .. 'unfailing', JOB .. jid .. '-dependents'}, redis.pcall('HGET', key, 'group')
    for name in string.gmatch(type(groups) == 'string' and groups or '', '%S+') do
      holders[#holders + 1] = JOB .. name .. '-dependents'
    end
    since = failed and since or not failed and tonumber((call('ZSCORE', prefix .. 'completed', jid)))
    if since == at and not (failed and (call('EXISTS', unpack(holders)) > 0
      or (tonumber(call('HGET', prefix .. 'paced:' .. group, 'left')) or 0) > 0)) then
      if call('EXISTS', key) == 1 then
        outcomes().missed(jid, failed and 'failed' or 'complete')
        call('DEL', key)
        call('ZREM', prefix .. 'outcomes', jid)
      end
      (failed and cancel or later().delete_complete)(jid)
      deleted = deleted + 1
    end
  end
  lazy_helpers().remove_from_groups()
  return deleted
end

if command == 'priority' then
  local jid, priority = need('Priority', 'jid', ARGV[3]), need('Priority', 'priority', ARGV[4], 'number')
  settings()
  local job = call('HMGET', JOB .. jid, 'queue', 'priority')
  local queue = job[1]
  if not queue then
    error('Priority(): Job ' .. jid .. ' does not exist')
  end
  local score = queue ~= '' and call('ZSCORE', QUEUE .. queue .. '-work', jid)
  if score then
    local age = fixes == 'all' and tonumber(job[2]) - tonumber(score) or 0
    call('ZADD', QUEUE .. queue .. '-work', priority - age, jid)
  end
  call('HSET', JOB .. jid, 'priority', priority)
  return priority
end

if command == 'depends' then
  local title, jid, action = 'Depends', need('Depends', 'jid', ARGV[3]), need('Depends', 'command', ARGV[4])
  if action ~= 'on' and action ~= 'off' then
    error('Depends(): Argument "command" must be "on" or "off"')
  end
  need(title, 'jid', ARGV[5])
  settings()
  local job = call('HMGET', JOB .. jid, 'state', 'queue', 'priority')
  if job[1] ~= 'depends' then
    error('Depends(): Job ' .. jid .. ' not in the depends state: ' .. tostring(job[1]))
  end
  local others = arguments(5)
  if action == 'on' then
    lazy_helpers().refuse_cycle(title, jid, others)
    lazy_helpers().link(jid, others)
    if call('EXISTS', prefix .. 'o:' .. jid) == 1 then
      outcomes().examine(jid)
    end
    return 1
  end
  local all, key = others[1] == 'all', JOB .. jid .. '-dependencies'
  if all and call('SCARD', key) > STEP or #others > STEP then
    later().link(jid, not all and others or nil, 'o')
    return 1
  end
  lazy_helpers().link(jid, all and call('SMEMBERS', key) or others, true)
  if call('SCARD', key) == 0 then
    call('ZREM', QUEUE .. job[2] .. '-depends', jid)
    call('ZADD', QUEUE .. job[2] .. '-work', (tonumber(job[3]) or 0) - now / 10000000000, jid)
    call('HSET', JOB .. jid, 'state', 'waiting')
    call('PUBLISH', prefix .. 'wake:' .. job[2], now)
  end
  return 1
end

if command == 'stage' then
  local jid, others = need('Stage', 'jid', ARGV[3]), arguments(4)
  need('Stage', 'jid', ARGV[4])
  later().stage(jid, others)
  return #others
end

if command == 'log' then
  local jid, message, data = need('Log', 'jid', ARGV[3]), need('Log', 'message', ARGV[4]), ARGV[5]
  settings()
  local extra = data and need('Log', 'data', data, 'json')
  if data and type(extra) ~= 'table' then
    error('Log(): Arg "data" not a JSON object: ' .. data)
  end
  if call('EXISTS', JOB .. jid) == 0 then
    error('Log(): Job ' .. jid .. ' does not exist')
  end
  extra = extra and encode(extra)
  append_history(jid, moment, encode(message), extra and extra ~= '{}' and string.match(extra, '^{(.*)}$'))
  return
end
