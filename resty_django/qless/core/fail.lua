-- fail  jid worker group message [data]
--   Fails a job and adds it to a failure group.
--   Reply: jid
-- retry  jid queue worker [delay=0] [group [message]]
--   Returns a job to its queue.
--   Reply: integer: number of retries left; negative: the job has failed
-- heartbeat  jid worker [data]
--   Extends the job's lock by the configured duration.
--   Reply: integer: new expiry time of the lock
-- timeout  jid ...
--   Takes running jobs from their workers and requeues them ahead of all others. Stops at the first error.
--   Reply: nil
-- progress  jid worker share [message]
--   Records the progress of a running job.
--   Reply: 1
-- Cost  O(log n)
if command == 'heartbeat' then
  local title, jid, worker, data = 'Heartbeat', ARGV[3], ARGV[4], ARGV[5]
  need(title, 'worker', need(title, 'jid', jid) and worker)
  local key = JOB .. jid
  local job = call('HMGET', key, 'state', 'worker', 'queue')
  local queue_heartbeat, general_heartbeat = settings((job[3] or '') .. '-heartbeat', 'heartbeat')
  local decoded = data and need(title, 'data', data, 'json')
  need_running(title, jid, job, worker, '', 'given out to')
  local expires = now + (tonumber(queue_heartbeat) or tonumber(general_heartbeat) or 60)
  if data then
    note_change(jid, data)
    call('HSET', key, 'expires', expires, 'worker', worker, 'data', fixes ~= 'none' and data or encode(decoded))
  else
    call('HSET', key, 'expires', expires, 'worker', worker)
  end
  call('ZADD', prefix .. 'w:' .. worker .. ':jobs', expires, jid)
  call('ZADD', prefix .. 'workers', now, worker)
  call('ZADD', QUEUE .. job[3] .. '-locks', expires, jid)
  return expires
end

if command == 'fail' then
  local title, jid, worker = 'Fail', need('Fail', 'jid', ARGV[3]), need('Fail', 'worker', ARGV[4])
  local group, message, data = need(title, 'group', ARGV[5]), need(title, 'message', ARGV[6]), ARGV[7]
  settings()
  local decoded = data and need(title, 'data', data, 'json')
  local job = call('HMGET', JOB .. jid, 'state', 'worker', 'queue')
  need_running(title, jid, job, worker, '', 'running with')
  local queue, name = job[3], encode(worker)
  call('PUBLISH', prefix .. 'log', '{"event":"failed","jid":' .. encode(jid) .. ',"worker":' .. name .. ',"group":'
    .. encode(group) .. ',"message":' .. encode(message) .. '}')
  local rare = call('EXISTS', QUEUE .. queue .. '-scheduled', prefix .. 'tracked', prefix .. 'o:' .. jid,
    JOB .. jid .. '-dependents') > 0
  if rare and call('ZSCORE', prefix .. 'tracked', jid) then
    call('PUBLISH', prefix .. 'failed', jid)
  end
  call('ZREM', prefix .. 'w:' .. worker .. ':jobs', jid)
  call('ZREM', QUEUE .. queue .. '-work', jid)
  call('ZREM', QUEUE .. queue .. '-locks', jid)
  if rare then
    call('ZREM', QUEUE .. queue .. '-scheduled', jid)
  end
  if data then
    call('HSET', JOB .. jid, 'data', fixes ~= 'none' and data or encode(decoded))
  end
  lazy_helpers().mark_failed(jid, queue, group, message, moment, worker, ',"worker":' .. name, rare)
  return jid
end

if command == 'retry' then
  local title, jid, queue = 'Retry', need('Retry', 'jid', ARGV[3]), need('Retry', 'queue', ARGV[4])
  local worker, delay = need(title, 'worker', ARGV[5]), need(title, 'delay', ARGV[6] or 0, 'number')
  local group, message = ARGV[7], ARGV[8]
  settings()
  local key = JOB .. jid
  local job = call('HMGET', key, 'state', 'worker', 'queue', 'remaining', 'priority')
  need_running(title, jid, job, worker, 'is ', 'has been given to')
  local remaining = (tonumber(job[4]) or 0) - 1
  call('HDEL', key, 'grace')
  call('ZREM', QUEUE .. job[3] .. '-locks', jid)
  call('ZREM', prefix .. 'w:' .. worker .. ':jobs', jid)
  call('HSET', key, 'remaining', remaining)
  if remaining < 0 then
    local text = message or 'Job exhausted retries in queue "' .. job[3] .. '"'
    lazy_helpers().mark_failed(jid, queue, group or 'failed-retries-' .. queue, text, message and moment or now,
      message and worker or '')
    if call('ZSCORE', prefix .. 'tracked', jid) then
      call('PUBLISH', prefix .. 'failed', jid)
    end
    return remaining
  end
  local due = delay > 0 and now + delay or now
  if delay > 0 then
    call('ZADD', QUEUE .. queue .. '-scheduled', due, jid)
  else
    call('ZADD', QUEUE .. queue .. '-work', (tonumber(job[5]) or 0) - now / 10000000000, jid)
  end
  call('HSET', key, 'state', delay > 0 and 'scheduled' or 'waiting')
  if message then
    call('HSET', key, 'failure', lazy_helpers().failure(group, message, moment, worker))
  end
  if fixes == 'all' or fixes ~= 'none' and queue ~= job[3] then
    call('HSET', key, 'queue', queue)
    call('ZADD', prefix .. 'queues', 'NX', now, queue)
  end
  if fixes == 'all' then
    call('HSET', key, 'worker', '', 'expires', 0)
  end
  call('PUBLISH', prefix .. 'wake:' .. queue, due)
  return remaining
end

if command == 'timeout' then
  need('Timeout', 'jid', ARGV[3])
  settings()
  for n = 3, #ARGV do
    local jid = ARGV[n]
    local job = call('HMGET', JOB .. jid, 'state', 'worker', 'queue')
    if not job[1] then
      error('Timeout(): Job ' .. jid .. ' does not exist')
    elseif job[1] ~= 'running' then
      error('Timeout(): Job ' .. jid .. ' not running')
    end
    append_history(jid, moment, '"timed-out"')
    call('ZREM', QUEUE .. job[3] .. '-locks', jid)
    call('ZADD', QUEUE .. job[3] .. '-work', '+inf', jid)
    call('HSET', JOB .. jid, 'state', 'stalled', 'expires', 0)
    if fixes == 'all' then
      call('ZREM', prefix .. 'w:' .. job[2] .. ':jobs', jid)
    end
    lazy_helpers().lock_lost(jid, job[2])
    call('PUBLISH', prefix .. 'wake:' .. job[3], now)
  end
  return
end

if command == 'progress' then
  local title, jid, worker = 'Progress', need('Progress', 'jid', ARGV[3]), need('Progress', 'worker', ARGV[4])
  local share, message = need(title, 'share', ARGV[5], 'number'), ARGV[6] or ''
  local life = settings('jobs-history')
  local job = call('HMGET', JOB .. jid, 'state', 'worker')
  need_running(title, jid, job, worker, '', 'given out to')
  local key = prefix .. 'x:' .. jid
  call('HSET', key, 'progress', share, 'message', message, 'at', now)
  call('EXPIRE', key, math.max(1, floor(tonumber(life) or 604800)) + 86400)
  return 1
end
