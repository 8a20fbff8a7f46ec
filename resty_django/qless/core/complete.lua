-- complete  jid worker queue data [next queue] [delay s] [depends json] [result json] [ttl s] [pending 1]
--           Reply: `complete`; with `next`, the job's state in that queue: `waiting`, `scheduled` or `depends`;
--           with `pending`, if later calls have to release its dependents, `pending`
-- Cost      O(log n), plus one step for each dependent and each expiring complete job, at most 100 of each
if command == 'complete' then
  local title = 'Complete'
  local jid, worker = need(title, 'jid', ARGV[3]), need(title, 'worker', ARGV[4])
  local queue, data = need(title, 'queue', ARGV[5]), need(title, 'data', ARGV[6])
  local life, kept = settings('jobs-history', 'jobs-history-count')
  life, kept = tonumber(life), tonumber(kept) or 50000
  life = life == life and life or 604800 -- not NaN
  need(title, 'data', data, 'json')
  local next_queue, result, ttl, pending
  local delay, depends = 0, {}
  for n = 7, #ARGV - 1, 2 do
    local name, value = ARGV[n], ARGV[n + 1]
    if name == 'next' then
      next_queue = value
    elseif name == 'delay' then
      delay = need(title, name, value, 'number')
    elseif name == 'depends' then
      depends = need(title, name, value, 'list')
    elseif name == 'result' then
      need(title, name, value, 'value')
      result = value
    elseif name == 'ttl' then
      ttl = need(title, name, value, 'number')
    elseif name == 'pending' then
      pending = value ~= '0'
    end
  end
  if not next_queue and delay ~= 0 then
    error('Complete(): "delay" cannot be used without a "next".')
  elseif not next_queue and depends[1] then
    error('Complete(): "depends" cannot be used without a "next".')
  end

  local key = JOB .. jid
  local job = call('HMGET', key, 'state', 'worker', 'queue', 'priority', 'retries', 'time', 'klass')
  if not job[1] then
    error('Complete(): Job ' .. jid .. ' does not exist')
  elseif job[1] ~= 'running' then
    error('Complete(): Job ' .. jid .. ' is not currently running: ' .. job[1])
  elseif job[2] ~= worker then
    error('Complete(): Job ' .. jid .. ' has been handed out to another worker: ' .. job[2])
  elseif job[3] ~= queue then
    error('Complete(): Job ' .. jid .. ' running in another queue: ' .. job[3])
  end
  if depends[1] then
    lazy_helpers().refuse_cycle(title, jid, depends)
  end

  append_history(jid, moment, '"done"')
  local rare = call('EXISTS', QUEUE .. queue .. '-scheduled', prefix .. 'tracked', key .. '-dependents',
    prefix .. 'o:' .. jid) > 0
  call('ZREM', QUEUE .. queue .. '-work', jid)
  call('ZREM', QUEUE .. queue .. '-locks', jid)
  if rare then
    call('ZREM', QUEUE .. queue .. '-scheduled', jid)
  end
  call('ZREM', prefix .. 'w:' .. worker .. ':jobs', jid)
  local seconds = now - (tonumber(job[6]) or now)
  record_duration('run', queue, {seconds})
  record_figure('r', queue, job[7] or '', seconds)
  if result then
    call('HSET', prefix .. 'x:' .. jid, 'result', result)
    call('EXPIRE', prefix .. 'x:' .. jid, math.max(1, floor(math.min(ttl or life + 86400, 1e9))))
  end
  if rare and call('ZSCORE', prefix .. 'tracked', jid) then
    call('PUBLISH', prefix .. 'completed', jid)
  end

  if next_queue then
    local name, priority, due = encode(next_queue), tonumber(job[4]) or 0, now
    call('PUBLISH', prefix .. 'log', '{"event":"advanced","jid":' .. encode(jid) .. ',"queue":' .. encode(queue)
      .. ',"to":' .. name .. '}')
    append_history(jid, moment, '"put"', '"q":' .. name)
    call('ZADD', prefix .. 'queues', 'NX', now, next_queue)
    local reply, state = 'waiting', 'waiting'
    if depends[1] then
      lazy_helpers().link(jid, depends)
    end
    local blocked = depends[1] and call('SCARD', key .. '-dependencies') > 0
    if blocked then
      reply, state = 'depends', 'depends'
      call('ZADD', QUEUE .. next_queue .. '-depends', now, jid)
      if delay > 0 then
        call('HSET', key, 'scheduled', now + delay)
      end
    elseif delay > 0 and (not depends[1] or fixes == 'all') then
      reply, state = 'scheduled', fixes == 'all' and 'scheduled' or 'waiting'
      due = now + delay
      call('ZADD', QUEUE .. next_queue .. '-scheduled', due, jid)
    else
      call('ZADD', QUEUE .. next_queue .. '-work', priority - now / 10000000000, jid)
    end
    note_change(jid, data)
    call('HSET', key, 'data', data, 'state', state, 'worker', '', 'failure', '{}', 'queue', next_queue, 'expires', 0,
      'remaining', job[5], 'time', format('%.20f', now))
    if not blocked then
      call('PUBLISH', prefix .. 'wake:' .. next_queue, due)
    end
    if rare and call('EXISTS', prefix .. 'o:' .. jid) == 1 then
      outcomes().put_again(jid, true)
      if blocked then
        outcomes().examine(jid)
      end
    end
    return reply
  end

  call('PUBLISH', prefix .. 'log', '{"event":"completed","jid":' .. encode(jid) .. ',"queue":' .. encode(queue) .. '}')
  note_change(jid, data)
  call('HSET', key, 'data', data, 'state', 'complete', 'worker', '', 'failure', '{}', 'queue', '', 'expires', 0,
    'remaining', job[5], 'time', format('%.20f', now))
  local completed = prefix .. 'completed'
  call('ZADD', completed, now, jid)

  if rare then
    call('HDEL', prefix .. 'x:' .. jid, 'skipped')
    if call('EXISTS', prefix .. 'o:' .. jid) == 1 and not end_member(jid) then
      outcomes().ended(jid, 'complete', result)
    end
  end
  if call('ZCARD', completed) > kept or call('ZRANGEBYSCORE', completed, 0, now - life, 'LIMIT', 0, 1)[1] then
    later().expire(life, kept, STEP / 2)
  end
  local deferred = rare and later().release(jid)
  if deferred then
    later().step(STEP)
  end
  if lazy_helpers_made then
    lazy_helpers().remove_from_groups()
  end
  return deferred and pending and 'pending' or 'complete'
end
