-- take  jid worker [holder]
--   Locks a waiting or scheduled job for a worker. With `holder`, takes a job that this other worker is running, and
--   notifies that worker of the lost lock; with an empty jid, the holder's job whose lock expires first.
--   Reply: JSON job; nil if the jid is empty and the holder has no job
-- Cost  O(log n)
if command == 'take' then
  local title, jid, worker, holder = 'Take', need('Take', 'jid', ARGV[3]), need('Take', 'worker', ARGV[4]), ARGV[5]
  for n = 0, jid == '' and holder and 9 or -1 do
    local held_jid = call('ZRANGE', prefix .. 'w:' .. holder .. ':jobs', n, n)[1]
    local fields = held_jid and call('HMGET', JOB .. held_jid, 'state', 'worker')
    if not held_jid then
      return
    elseif fields[1] == 'running' and fields[2] == holder then
      jid = held_jid
      break
    end
  end
  local key, job = JOB .. jid, read(jid, true)
  local queue, state = job[2] or '', job[STATE]
  local queue_heartbeat, general_heartbeat = settings(queue .. '-heartbeat', 'heartbeat')
  if not job[KLASS] then
    error('Take(): Job ' .. jid .. ' does not exist')
  elseif holder and state ~= 'running' then
    error('Take(): Job ' .. jid .. ' not currently running: ' .. state)
  elseif holder and job[WORKER] ~= holder then
    error('Take(): Job ' .. jid .. ' given out to another worker: ' .. job[WORKER])
  elseif not holder and state ~= 'waiting' and state ~= 'scheduled' and state ~= 'stalled' then
    error('Take(): Job ' .. jid .. ' is neither waiting nor scheduled: ' .. state)
  end
  local expires = format('%.17g', now + (tonumber(queue_heartbeat) or tonumber(general_heartbeat) or 60))
  if holder then
    append_history(jid, moment, '"taken"', '"worker":' .. encode(worker))
    call('ZREM', prefix .. 'w:' .. holder .. ':jobs', jid)
    call('PUBLISH', prefix .. 'w:' .. holder, '{"event":"lock_lost","jid":' .. encode(jid) .. ',"worker":'
      .. encode(holder) .. '}')
  else
    append_history(jid, moment, '"popped"', '"worker":' .. encode(worker))
    call('ZREM', QUEUE .. queue .. '-work', jid)
    call('ZREM', QUEUE .. queue .. '-scheduled', jid)
    call('HSET', key, 'time', format('%.20f', now))
    local waits = {now - (tonumber(job[TIME]) or now)}
    record_duration('wait', queue, waits)
    record_figures('w', queue, {job[KLASS]}, waits)
  end
  call('HSET', key, 'worker', worker, 'expires', expires, 'state', 'running')
  call('HDEL', key, 'grace')
  call('ZADD', prefix .. 'w:' .. worker .. ':jobs', expires, jid)
  call('ZADD', prefix .. 'workers', now, worker)
  call('ZADD', QUEUE .. queue .. '-locks', expires, jid)
  job[STATE], job[WORKER], job[EXPIRES] = 'running', worker, expires
  job[TRACKED] = call('ZSCORE', prefix .. 'tracked', jid)
  if job[TRACKED] and not holder then
    call('PUBLISH', prefix .. 'popped', jid)
  end
  return job_json(jid, job, true)
end
