-- complete  jid worker queue data [next queue] [delay s] [depends list] [result json] [ttl s] [pending 1]
--   Completes a job, or moves it to the queue `next`. Only completion releases its dependents. The result is kept for
--   `ttl` seconds, or else as long as the job.
--   Reply: `complete`; with `next`, the job's state in that queue: `waiting`, `scheduled` or `depends`; with `pending`,
--   if later calls have to release its dependents, `pending`
-- complete.many  worker queue, and for each of at most 100 jobs: jid data result ttl
--   Completes jobs of one queue; costs less than a call for each. An empty string stands for no result and for no ttl.
--   Jobs without dependents are completed first. If the whole call fails, some jobs may be complete: call `complete`
--   for
--   each.
--   Reply: for each job `complete`, `pending`, or the text of an error, which leaves the job unchanged
-- Cost  O(log n), plus one step for each dependent and each expiring complete job, at most 100 of each in a call

-- Raise an error unless this worker is running the job. `job`: its state and worker, and more. `is`, `whose`: words of
-- the messages, which differ between commands.
local function need_running(title, jid, job, worker, is, whose)
  local subject = title .. '(): Job ' .. jid .. ' '
  if not job[1] then
    error(subject .. 'does not exist')
  elseif job[1] ~= 'running' then
    error(subject .. is .. 'not currently running: ' .. job[1])
  elseif job[2] ~= worker then
    error(subject .. whose .. ' another worker: ' .. job[2])
  end
end

if command == 'complete' or command == 'complete.many' then
  local title, many = 'Complete', command == 'complete.many'
  local jid = many or need(title, 'jid', ARGV[3])
  local worker, queue = need(title, 'worker', ARGV[many and 3 or 4]), need(title, 'queue', ARGV[many and 4 or 5])
  local data = many or need(title, 'data', ARGV[6])
  local life, kept = settings('jobs-history', 'jobs-history-count')
  life, kept = tonumber(life), tonumber(kept) or 50000
  life = life == life and life or 604800 -- not NaN
  local completed = prefix .. 'completed'

  -- Return a job that the worker may complete, or raise an error.
  local function read_running(jid, data, result, ttl)
    local job = call('HMGET', JOB .. jid, 'state', 'worker', 'queue', 'priority', 'retries', 'time', 'klass')
    need_running(title, jid, job, worker, 'is ', 'has been handed out to')
    if job[3] ~= queue then
      error('Complete(): Job ' .. jid .. ' running in another queue: ' .. job[3])
    end
    return {jid = jid, data = data, result = result, ttl = ttl, priority = job[4], retries = job[5],
      began = tonumber(job[6]) or now, klass = job[7] or '',
      rare = call('EXISTS', prefix .. 'tracked', JOB .. jid .. '-dependents', prefix .. 'o:' .. jid) > 0}
  end

  -- Take jobs from the queue and the worker, and complete them, unless they advance to another queue.
  local function finish(jobs, advance)
    local jids, classes, runs, scored = {''}, {''}, {0}, {0, 0} -- preallocated
    for n, job in ipairs(jobs) do
      jids[n], classes[n], runs[n] = job.jid, job.klass, now - job.began
      scored[2 * n - 1], scored[2 * n] = now, job.jid
    end
    call('ZREM', QUEUE .. queue .. '-work', unpack(jids))
    call('ZREM', QUEUE .. queue .. '-locks', unpack(jids))
    call('ZREM', QUEUE .. queue .. '-scheduled', unpack(jids))
    call('ZREM', prefix .. 'w:' .. worker .. ':jobs', unpack(jids))
    record_duration('run', queue, runs)
    record_figures('r', queue, classes, runs)
    local time, queue_text = format('%.20f', now), encode(queue)
    for _, job in ipairs(jobs) do
      append_history(job.jid, moment, '"done"')
      if job.result then
        local key, ttl = prefix .. 'x:' .. job.jid, job.ttl or life + 86400
        call('HSET', key, 'result', job.result)
        call('EXPIRE', key, math.max(1, floor(math.min(ttl, 1e9))))
      end
      if job.rare and call('ZSCORE', prefix .. 'tracked', job.jid) then
        call('PUBLISH', prefix .. 'completed', job.jid)
      end
      if not advance then
        call('PUBLISH', prefix .. 'log', '{"event":"completed","jid":' .. encode(job.jid) .. ',"queue":' .. queue_text
          .. '}')
        note_change(job.jid, job.data)
        call('HSET', JOB .. job.jid, 'data', job.data, 'state', 'complete', 'worker', '', 'failure', '{}', 'queue', '',
          'expires', 0, 'remaining', job.retries, 'time', time)
      end
    end
    if not advance then
      call('ZADD', completed, unpack(scored))
    end
  end

  -- Let what waits for a complete job (nil: nothing waits) continue, and delete complete jobs that are too old or too
  -- many. Return whether work is left to later calls.
  local stepped = false
  local function follow_up(job)
    if job then
      call('HDEL', prefix .. 'x:' .. job.jid, 'skipped')
      if call('EXISTS', prefix .. 'o:' .. job.jid) == 1 and not end_member(job.jid) then
        outcomes().ended(job.jid, 'complete', job.result)
      end
    end
    if call('ZCARD', completed) > kept or call('ZRANGEBYSCORE', completed, 0, now - life, 'LIMIT', 0, 1)[1] then
      later().expire(life, kept, STEP / 2)
    end
    local deferred = job and later().release(job.jid)
    if deferred and not stepped then
      stepped = true
      later().step(STEP)
    end
    if lazy_helpers_made then
      lazy_helpers().remove_from_groups()
    end
    return deferred
  end

  if many then
    if (#ARGV - 4) % 4 ~= 0 or #ARGV > 404 then
      error('Complete(): a job is four arguments, jid data result ttl, for at most 100 jobs, but there are '
        .. #ARGV - 4)
    end
    local function read_entry(n)
      local result, ttl = ARGV[n + 2] ~= '' and ARGV[n + 2], ARGV[n + 3] ~= '' and ARGV[n + 3]
      need(title, 'data', ARGV[n + 1], 'json')
      if result then
        need(title, 'result', result, 'value')
      end
      return read_running(ARGV[n], ARGV[n + 1], result, ttl and need(title, 'ttl', ttl, 'number'))
    end
    local replies, jobs, others, known = {}, {}, {}, {}
    for n = 5, #ARGV, 4 do
      local valid, job = pcall(read_entry, n)
      if valid and not job.rare and not known[job.jid] then
        jobs[#jobs + 1], replies[(n - 1) / 4] = job, 'complete'
      else
        others[#others + 1] = n -- the end of another job may change it
      end
      known[ARGV[n]] = true
    end
    if jobs[1] then
      finish(jobs)
      follow_up()
    end
    for _, n in ipairs(others) do
      local valid, job = pcall(read_entry, n)
      if valid then
        finish({job})
        replies[(n - 1) / 4] = follow_up(job.rare and job) and 'pending' or 'complete'
      else
        local text = type(job) == 'table' and job.err or job
        replies[(n - 1) / 4] = string.match(text, 'Complete%(%):.*') or text
      end
    end
    return replies
  end

  need(title, 'data', data, 'json')
  local given = {delay = 0, depends = '[]'}
  for n = 7, #ARGV - 1, 2 do
    given[ARGV[n]] = ARGV[n + 1]
  end
  local next_queue, result, delay = given.next, given.result, need(title, 'delay', given.delay, 'number')
  local depends = need(title, 'depends', given.depends, 'list')
  local ttl = given.ttl and need(title, 'ttl', given.ttl, 'number')
  if result then
    need(title, 'result', result, 'value')
  end
  if not next_queue and delay ~= 0 then
    error('Complete(): "delay" cannot be used without a "next".')
  elseif not next_queue and depends[1] then
    error('Complete(): "depends" cannot be used without a "next".')
  end
  local key, job = JOB .. jid, read_running(jid, data, result, ttl)
  if depends[1] then
    lazy_helpers().refuse_cycle(title, jid, depends)
  end
  finish({job}, next_queue)
  if not next_queue then
    return follow_up(job.rare and job) and (given.pending or '0') ~= '0' and 'pending' or 'complete'
  end
  local name, priority, due = encode(next_queue), tonumber(job.priority) or 0, now
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
    'remaining', job.retries, 'time', format('%.20f', now))
  if not blocked then
    call('PUBLISH', prefix .. 'wake:' .. next_queue, due)
  end
  if job.rare and call('EXISTS', prefix .. 'o:' .. jid) == 1 then
    outcomes().put_again(jid, true)
    if blocked then
      outcomes().examine(jid)
    end
  end
  return reply
end
