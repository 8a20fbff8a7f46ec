-- put  worker queue jid klass data delay [priority n] [tags list] [retries n] [depends list] [txid text]
--     [request_id text] [unique word] [staged 1] [outcome object]
--   Puts a job, or moves an existing one, which keeps its priority, tags, retries and dependencies unless they are
--   passed. A new job has the priority 0, no tags, 5 retries and no dependencies. `delay`: seconds. With `staged`
--   instead of `depends`, the job waits for the jobs staged for it. With `unique`, an existing job stays unchanged:
--   `ever` always, `pending` unless it is complete or failed. `outcome`: callbacks, policies and a group.
--   Reply: jid
-- requeue  as put
--   Puts an existing job again. Without `outcome`, the job keeps its callbacks, policies and groups.
--   Reply: jid
-- put.many  worker queue, and for each job: jid klass data delay options
--   Puts jobs. `options`: a JSON object with the options of `put` except `staged`, or an empty string. All jobs are
--   checked before the first is written.
--   Reply: integer: number of jobs
-- Cost  O(log n) in the length of the queue, and one step for each tag and dependency
if command == 'put' or command == 'requeue' or command == 'put.many' then
  local worker, queue = need('Put', 'worker', ARGV[3]), need('Put', 'queue', ARGV[4])
  local queue_text = encode(queue)
  local KINDS = {priority = 'number', tags = 'list', retries = 'number', depends = 'list', outcome = 'json'}

  local function put(jid, klass, data, delay, priority, tags, retries, depends, txid, unique, staged, outcome,
    request_id)
    local key = JOB .. jid
    local old = call('HMGET', key, 'state', 'queue', 'worker', 'priority', 'tags', 'retries', 'failure', 'scheduled')
    local state, holder, old_tags = old[1], old[3], old[5]
    if unique and state and (unique == 'ever' or state ~= 'complete' and state ~= 'failed') then
      if outcome and outcome.group then
        outcomes().join(jid, outcome.group, state)
      end
      return
    end
    local tied = state and call('EXISTS', prefix .. 'o:' .. jid, key .. '-dependents') > 0
    if tied and (state == 'complete' or state == 'failed') then
      outcomes().missed(jid, state)
    end
    priority, retries = priority or tonumber(old[4]) or 0, retries or tonumber(old[6]) or 5
    if old_tags and #old_tags > 2 then
      lazy_helpers().tag(jid, old_tags, -1)
    end
    if staged or depends and depends[1] then
      local before = state and call('SCARD', key .. '-dependencies') or 0
      if before > STEP or staged and before > 0 then -- the task skips dependencies that are wanted again
        later().link(jid, nil, 'u')
      elseif before > 0 then
        local kept_jids, unwanted = {}, {}
        for _, other in ipairs(depends) do
          kept_jids[other] = true
        end
        for _, other in ipairs(call('SMEMBERS', key .. '-dependencies')) do
          unwanted[#unwanted + 1] = not kept_jids[other] and other or nil
        end
        lazy_helpers().link(jid, unwanted, true)
      end
    end

    call('PUBLISH', prefix .. 'log', '{"event":"put","jid":' .. encode(jid) .. ',"queue":' .. queue_text .. '}')
    append_history(jid, moment, '"put"', '"q":' .. queue_text, not state)
    if state then
      for _, suffix in ipairs(old[2] ~= '' and {'-work', '-locks', '-depends', '-scheduled'} or {}) do
        call('ZREM', QUEUE .. old[2] .. suffix, jid)
      end
      if holder and holder ~= '' then
        call('ZREM', prefix .. 'w:' .. holder .. ':jobs', jid)
        if holder ~= worker then
          lazy_helpers().lock_lost(jid, holder)
        end
      end
      if state == 'complete' then
        call('ZREM', prefix .. 'completed', jid)
      elseif state == 'failed' then
        lazy_helpers().unmark_failed(jid, old[7], fixes == 'all' and old[2] or queue)
      end
      if old[8] then
        call('HDEL', key, 'scheduled')
      end
      call('DEL', prefix .. 'x:' .. jid)
    end
    tags = tags and (tags[1] and encode(tags) or '{}') or old_tags or '{}'
    if #tags > 2 then
      lazy_helpers().tag(jid, tags, 1)
    end

    if staged then
      later().link(jid, nil, 'l')
    elseif depends then
      lazy_helpers().link(jid, depends)
    end
    local due, earlier = now, state
    local rare = call('EXISTS', key .. '-dependencies', prefix .. 'tracked') > 0
    if rare and call('EXISTS', key .. '-dependencies') == 1 then
      state, due = 'depends', nil
      call('ZADD', QUEUE .. queue .. '-depends', now, jid)
    elseif delay > 0 then
      state, due = 'scheduled', now + delay
      call('ZADD', QUEUE .. queue .. '-scheduled', due, jid)
    else
      state = 'waiting'
      call('ZADD', QUEUE .. queue .. '-work', priority - now / 10000000000, jid)
    end
    call('HSET', key, 'jid', jid, 'klass', klass, 'data', data, 'priority', priority, 'tags', tags, 'state', state,
      'worker', '', 'expires', 0, 'queue', queue, 'retries', retries, 'remaining', retries,
      'time', format('%.20f', now))
    if is_indexed(klass) then
      note_job(jid)
    end
    if txid then
      call('HSET', key, 'txid', txid)
    end
    if request_id then
      call('HSET', key, 'request_id', request_id)
    elseif txid and earlier then
      call('HDEL', key, 'request_id')
    end
    if due then
      call('PUBLISH', prefix .. 'wake:' .. queue, due)
    elseif delay > 0 then
      call('HSET', key, 'scheduled', now + delay)
    end
    if rare and call('ZSCORE', prefix .. 'tracked', jid) then
      call('PUBLISH', prefix .. 'put', jid)
    end
    if tied then
      outcomes().put_again(jid, command == 'requeue' and not outcome)
      if earlier == 'failed' then
        outcomes().restored(jid)
      end
    end
    if outcome then
      outcomes().bind(jid, outcome)
    end
    if (outcome or earlier == 'failed') and state == 'depends' then
      outcomes().examine(jid)
    end
  end

  if command ~= 'put.many' then
    local jid, klass = need('Put', 'jid', ARGV[5]), need('Put', 'klass', ARGV[6])
    settings()
    need('Put', 'data', ARGV[7], 'json')
    local delay = need('Put', 'delay', ARGV[8], 'number')
    if #ARGV % 2 == 1 then
      error('Odd number of additional args: ' .. table.concat(ARGV, ' ', 9))
    end
    local spec = {}
    for n = 9, #ARGV, 2 do
      local name, value = ARGV[n], ARGV[n + 1]
      spec[name] = KINDS[name] and need('Put', name, value, KINDS[name]) or value
    end
    local depends, staged = spec.depends, spec.staged and spec.staged ~= '0'
    if spec.outcome then
      outcomes().check_spec('Put', spec.outcome, depends)
    end
    if command == 'requeue' and call('EXISTS', JOB .. jid) == 0 then
      error('Requeue(): Job ' .. jid .. ' does not exist')
    end
    if depends then
      lazy_helpers().refuse_cycle('Put', jid, depends)
    end
    if staged and call('EXISTS', prefix .. 'p:s:' .. jid) == 0 then
      error('Put(): No jobs are staged for ' .. jid)
    end
    put(jid, klass, ARGV[7], delay, spec.priority, spec.tags, spec.retries, depends, spec.txid, spec.unique, staged,
      spec.outcome, spec.request_id)
    if lazy_helpers_made then
      lazy_helpers().remove_from_groups()
    end
    call('ZADD', prefix .. 'queues', 'NX', now, queue)
    mark_once()
    return jid
  end

  if (#ARGV - 4) % 5 ~= 0 then
    error('Put(): a job is five arguments, jid klass data delay options, but there are ' .. #ARGV - 4)
  end
  settings()
  local options, planned = {}, {}
  for n = 5, #ARGV, 5 do
    need('Put', 'data', ARGV[n + 2], 'json')
    need('Put', 'delay', ARGV[n + 3], 'number')
    if ARGV[n + 4] ~= '' then
      local spec = need('Put', 'options', ARGV[n + 4], 'json')
      if type(spec) ~= 'table' then
        error('Put(): Arg "options" not a JSON object: ' .. ARGV[n + 4])
      end
      for name, kind in pairs(KINDS) do
        if spec[name] ~= nil and kind ~= 'json' then
          spec[name] = need('Put', name, kind == 'list' and encode(spec[name]) or tostring(spec[name]), kind)
        end
      end
      if spec.outcome ~= nil then
        outcomes().check_spec('Put', spec.outcome, spec.depends)
      end
      options[n], planned[ARGV[n]] = spec, spec.depends
    end
  end
  for jid, depends in pairs(planned) do
    lazy_helpers().refuse_cycle('Put', jid, depends, planned)
  end
  for n = 5, #ARGV, 5 do
    local spec = options[n] or {}
    put(ARGV[n], ARGV[n + 1], ARGV[n + 2], tonumber(ARGV[n + 3]), spec.priority, spec.tags, spec.retries,
      spec.depends, spec.txid and tostring(spec.txid), spec.unique, nil, spec.outcome,
      spec.request_id and tostring(spec.request_id))
  end
  if lazy_helpers_made then
    lazy_helpers().remove_from_groups()
  end
  call('ZADD', prefix .. 'queues', 'NX', now, queue)
  return (#ARGV - 4) / 5
end
