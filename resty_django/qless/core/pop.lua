-- pop       queue worker count   Reply: JSON list of the jobs, which are the worker's until their locks expire
-- peek      queue count          Reply: JSON list of the jobs that a pop would meet first; no lock is taken
-- Cost      O(k log n) for k jobs; more where locks have expired or jobs fall due
if command == 'pop' then
  local queue, worker = need('Pop', 'queue', ARGV[3]), need('Pop', 'worker', ARGV[4])
  local wanted = floor(need('Pop', 'count', ARGV[5], 'number'))
  local own, common, limit, grace = settings(queue .. '-heartbeat', 'heartbeat', queue .. '-max-concurrency',
    'grace-period')
  local time, expires = format('%.20f', now), format('%.17g', now + (tonumber(own) or tonumber(common) or 60))
  if wanted < 0 and fixed('pop-count') then
    error('Pop(): Arg "count" must not be negative: ' .. wanted)
  elseif wanted < 0 then -- all but so many
    wanted = math.max(0, wanted + call('ZCARD', QUEUE .. queue .. '-work'))
  end
  limit, grace = tonumber(limit) or 0, tonumber(grace) or 10
  local locks = QUEUE .. queue .. '-locks'

  local rare = call('EXISTS', prefix .. 'paused_queues', prefix .. 'tracked', QUEUE .. queue .. '-recur',
    QUEUE .. queue .. '-scheduled') > 0
  if rare and call('SISMEMBER', prefix .. 'paused_queues', queue) == 1 then
    return '{}'
  end
  call('ZADD', prefix .. 'workers', time, worker)
  if limit > 0 then
    wanted = math.min(wanted, math.max(0, limit - call('ZCOUNT', locks, now, '+inf')))
  end
  if wanted == 0 then
    return '{}'
  end

  -- An expired lock is lost in two steps: the holder gets notice, and when the time of grace is over as well, the job
  -- is taken from him.
  local jids, jobs = {}, {}
  local late = call('ZCOUNT', locks, '-inf', time) > 0
  local expired = late and call('ZRANGEBYSCORE', locks, '-inf', now, 'LIMIT', 0, wanted) or {}
  local made = expired[1] and seldom()
  for _, jid in ipairs(expired) do
    local job = read(jid, true)
    local holder, noticed = job[WORKER] or '', call('HGET', JOB .. jid, 'grace') == '1'
    call('ZREM', prefix .. 'w:' .. holder .. ':jobs', jid)
    if not job[KLASS] then
      call('ZREM', locks, jid)
    elseif not noticed or grace <= 0 then
      if call('ZSCORE', prefix .. 'tracked', jid) then
        call('PUBLISH', prefix .. 'stalled', jid)
      end
      happened(jid, moment, '"timed-out"')
      call('HSET', JOB .. jid, 'grace', 1)
      made.lock_lost(jid, holder)
      call('ZADD', locks, now + grace, jid)
      made.count(queue, 'retries')
    end
    if job[KLASS] and (noticed or grace <= 0) then
      local remaining = (tonumber(job[REMAINING]) or 0) - 1
      job[REMAINING] = remaining
      call('HDEL', JOB .. jid, 'grace')
      call('HSET', JOB .. jid, 'remaining', remaining)
      if remaining >= 0 then
        jids[#jids + 1], jobs[#jobs + 1] = jid, job
        call('ZREM', QUEUE .. queue .. '-work', jid)
      else
        for _, place in ipairs({'-work', '-locks', '-scheduled'}) do
          call('ZREM', QUEUE .. queue .. place, jid)
        end
        local group, message = 'failed-retries-' .. queue, 'Job exhausted retries in queue "' .. queue .. '"'
        made.sink(jid, queue, group, message, now, '')
        if call('ZSCORE', prefix .. 'tracked', jid) then
          call('PUBLISH', prefix .. 'failed', jid)
        end
        call('PUBLISH', prefix .. 'log', '{"event":"failed","jid":' .. encode(jid) .. ',"worker":' .. encode(holder)
          .. ',"group":' .. encode(group) .. ',"message":' .. encode(message) .. '}')
      end
    end
  end

  local lost = #jids
  if wanted > lost then
    if rare then
      seldom().bring_due(queue, wanted - lost, true)
    end
    local best = call('ZPOPMAX', QUEUE .. queue .. '-work', wanted - lost)
    for n = 1, #best, 2 do
      local jid, job = best[n], read(best[n])
      if job[KLASS] then
        jids[#jids + 1], jobs[#jobs + 1] = jid, job
      end
    end
  end
  if not jids[1] then
    return '{}'
  end

  local waits, held, ties = {0}, {0, 0}, {0, 0} -- of the length that most pops need
  local popped = '"worker":' .. encode(worker)
  local entry = '{' .. popped .. ',"when":' .. moment .. ',"what":"popped"}'
  for n, jid in ipairs(jids) do
    local job, key = jobs[n], JOB .. jid
    happened(jid, moment, '"popped"', popped)
    call('HSET', key, 'time', time, 'worker', worker, 'expires', expires, 'state', 'running')
    waits[n] = now - (tonumber(job[TIME]) or now)
    held[2 * n - 1], held[2 * n] = expires, jid
    ties[2 * n - 1], ties[2 * n] = key .. '-dependencies', key .. '-dependents'
    job[STATE], job[WORKER], job[EXPIRES] = 'running', worker, expires
    job[TRACKED] = rare and call('ZSCORE', prefix .. 'tracked', jid)
    if job[TRACKED] then
      call('PUBLISH', prefix .. 'popped', jid)
    end
  end
  local tied = false
  for n = 1, #held, 1000 do
    local last = math.min(n + 999, #held)
    call('ZADD', prefix .. 'w:' .. worker .. ':jobs', unpack(held, n, last))
    call('ZADD', locks, unpack(held, n, last))
    tied = call('EXISTS', unpack(ties, n, last)) > 0 or tied
  end
  measure('wait', queue, waits)
  for n, jid in ipairs(jids) do
    jids[n] = show(jid, jobs[n], tied, max_history ~= 1 and entry)
  end
  return '[' .. table.concat(jids, ',') .. ']'
end

local function list(items)
  return items[1] and encode(items) or '{}'
end

-- JSON list of the jobs that exist.
local function show_all(jids)
  local shown = {}
  for _, jid in ipairs(jids) do
    local job = read(jid, true)
    if job[KLASS] then
      job[TRACKED] = call('ZSCORE', prefix .. 'tracked', jid)
      shown[#shown + 1] = show(jid, job, true)
    end
  end
  return shown[1] and '[' .. table.concat(shown, ',') .. ']' or '{}'
end

if command == 'peek' then
  local queue = need('Peek', 'queue', ARGV[3])
  local wanted = floor(need('Peek', 'count', ARGV[4], 'number'))
  settings()
  if wanted < 0 and fixed('pop-count') then
    error('Peek(): Arg "count" must not be negative: ' .. wanted)
  elseif wanted < 0 then -- all but so many
    wanted = math.max(0, wanted + call('ZCARD', QUEUE .. queue .. '-work'))
  end
  if wanted == 0 then
    return '{}'
  end
  local jids = call('ZRANGEBYSCORE', QUEUE .. queue .. '-locks', '-inf', now, 'LIMIT', 0, wanted)
  if #jids < wanted then
    seldom().bring_due(queue, wanted - #jids, true)
    for _, jid in ipairs(call('ZREVRANGE', QUEUE .. queue .. '-work', 0, wanted - #jids - 1)) do
      jids[#jids + 1] = jid
    end
  end
  return show_all(jids)
end
