-- pop  queue worker count
--   Locks jobs for a worker: first jobs that have lost their lock, then waiting jobs by priority and age.
--   Reply: JSON list of jobs
-- peek  queue count
--   Returns the jobs that a pop would find first, without locking them.
--   Reply: JSON list of jobs
-- Cost  O(k log n) for k jobs; more if locks have expired or jobs are due
if command == 'pop' then
  local queue, worker = need('Pop', 'queue', ARGV[3]), need('Pop', 'worker', ARGV[4])
  local wanted = floor(need('Pop', 'count', ARGV[5], 'number'))
  local queue_heartbeat, general_heartbeat, limit, grace = settings(queue .. '-heartbeat', 'heartbeat',
    queue .. '-max-concurrency', 'grace-period')
  local time, expires = format('%.20f', now),
    format('%.17g', now + (tonumber(queue_heartbeat) or tonumber(general_heartbeat) or 60))
  if wanted < 0 and fixes ~= 'none' then
    error('Pop(): Arg "count" must not be negative: ' .. wanted)
  elseif wanted < 0 then -- all but -wanted
    wanted = math.max(0, wanted + call('ZCARD', QUEUE .. queue .. '-work'))
  end
  limit, grace = tonumber(limit) or 0, tonumber(grace) or 10
  local locks = QUEUE .. queue .. '-locks'

  local rare = call('EXISTS', prefix .. 'paused_queues', prefix .. 'tracked', QUEUE .. queue .. '-recur',
    QUEUE .. queue .. '-scheduled', QUEUE .. queue .. '-paced', prefix .. 'pending', prefix .. 'unfailing') > 0
  if rare and call('EXISTS', prefix .. 'pending', prefix .. 'unfailing') > 0 then
    later().step(math.max(STEP / 4, math.min(wanted, STEP)))
  end
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

  -- An expired lock is lost in two steps: first its holder is notified; after the grace period, another worker gets the
  -- job.
  local jids, jobs = {}, {}
  local late = call('ZCOUNT', locks, '-inf', time) > 0
  local expired = late and call('ZRANGEBYSCORE', locks, '-inf', now, 'LIMIT', 0, wanted) or {}
  local helpers = expired[1] and lazy_helpers()
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
      append_history(jid, moment, '"timed-out"')
      call('HSET', JOB .. jid, 'grace', 1)
      helpers.lock_lost(jid, holder)
      call('ZADD', locks, now + grace, jid)
      helpers.count(queue, 'retries')
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
        for _, suffix in ipairs({'-work', '-locks', '-scheduled'}) do
          call('ZREM', QUEUE .. queue .. suffix, jid)
        end
        local group, message = 'failed-retries-' .. queue, 'Job exhausted retries in queue "' .. queue .. '"'
        helpers.mark_failed(jid, queue, group, message, now, '')
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
      if call('EXISTS', QUEUE .. queue .. '-paced') == 1 then
        later().pace_some(queue)
      end
      lazy_helpers().enqueue_due(queue, wanted - lost, true)
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

  local waits, classes, lock_pairs, link_keys = {0}, {0}, {0, 0}, {0, 0} -- preallocated for the length of most pops
  local popped = '"worker":' .. encode(worker)
  local entry = '{' .. popped .. ',"when":' .. moment .. ',"what":"popped"}'
  for n, jid in ipairs(jids) do
    local job, key = jobs[n], JOB .. jid
    append_history(jid, moment, '"popped"', popped)
    call('HSET', key, 'time', time, 'worker', worker, 'expires', expires, 'state', 'running')
    if job[2] ~= queue and fixes ~= 'none' then -- moved by another core's `retry`
      call('HSET', key, 'queue', queue)
      job[2] = queue
    end
    waits[n], classes[n] = now - (tonumber(job[TIME]) or now), job[KLASS]
    lock_pairs[2 * n - 1], lock_pairs[2 * n] = expires, jid
    link_keys[2 * n - 1], link_keys[2 * n] = key .. '-dependencies', key .. '-dependents'
    job[STATE], job[WORKER], job[EXPIRES] = 'running', worker, expires
    job[TRACKED] = rare and call('ZSCORE', prefix .. 'tracked', jid)
    if job[TRACKED] then
      call('PUBLISH', prefix .. 'popped', jid)
    end
  end
  local tied = false
  for n = 1, #lock_pairs, 1000 do
    local last = math.min(n + 999, #lock_pairs)
    call('ZADD', prefix .. 'w:' .. worker .. ':jobs', unpack(lock_pairs, n, last))
    call('ZADD', locks, unpack(lock_pairs, n, last))
    tied = call('EXISTS', unpack(link_keys, n, last)) > 0 or tied
  end
  record_duration('wait', queue, waits)
  record_figures('w', queue, classes, waits)
  for n, jid in ipairs(jids) do
    jids[n] = job_json(jid, jobs[n], tied, max_history ~= 1 and entry)
  end
  return '[' .. table.concat(jids, ',') .. ']'
end

local function list(items)
  return items[1] and encode(items) or '{}'
end

-- Return the arguments from one on: a list, and a set of them.
local function arguments(first)
  local values, set = {}, {}
  for n = first, #ARGV do
    values[n - first + 1], set[ARGV[n]] = ARGV[n], true
  end
  return values, set
end

-- Return the tags of a job, the content of its field, with the arguments from one on, or without them.
local function changed_tags(tags, first, add)
  local all, has, changed = #tags > 2 and cjson.decode(tags) or {}, {}, {}
  for _, name in ipairs(all) do
    has[name] = true
  end
  for n = first, #ARGV do
    all[#all + 1] = add and not has[ARGV[n]] and ARGV[n] or nil
    has[ARGV[n]] = add
  end
  for _, name in ipairs(all) do
    changed[#changed + 1] = has[name] and name or nil
  end
  return list(changed)
end

-- Return offset and count of the part that `page` asks for; for any other command, everything.
local function page()
  if command ~= 'page' then
    return 0, 1000000000
  end
  local cursor = need('Page', 'cursor', ARGV[4] and ARGV[4] ~= '' and ARGV[4] or 0, 'number')
  local limit = need('Page', 'count', ARGV[5] or STEP, 'number')
  return math.max(0, floor(cursor)), math.max(1, math.min(floor(limit), 10 * STEP))
end

-- Return the reply of such a command. `text`: JSON of `count` items.
local function paged(text, count, cursor, limit)
  return command ~= 'page' and text
    or '{"items":' .. text .. ',"cursor":"' .. (count < limit and '' or cursor + limit) .. '"}'
end

-- Return a JSON list of elements that are JSON already.
local function joined(elements)
  return elements[1] and '[' .. table.concat(elements, ',') .. ']' or '{}'
end

-- Return a JSON list of the jobs that exist, and a list of the others. `tracked`: all are tracked.
local function jobs_json(jids, tracked)
  local jobs, missing = {}, {}
  for _, jid in ipairs(jids) do
    local job = read(jid, true)
    if job[KLASS] then
      job[TRACKED] = tracked or call('ZSCORE', prefix .. 'tracked', jid)
      jobs[#jobs + 1] = job_json(jid, job, true)
    else
      missing[#missing + 1] = jid
    end
  end
  return joined(jobs), missing
end

if command == 'peek' then
  local queue = need('Peek', 'queue', ARGV[3])
  local wanted = floor(need('Peek', 'count', ARGV[4], 'number'))
  settings()
  if wanted < 0 and fixes ~= 'none' then
    error('Peek(): Arg "count" must not be negative: ' .. wanted)
  elseif wanted < 0 then -- all but -wanted
    wanted = math.max(0, wanted + call('ZCARD', QUEUE .. queue .. '-work'))
  end
  if wanted == 0 then
    return '{}'
  end
  local jids = call('ZRANGEBYSCORE', QUEUE .. queue .. '-locks', '-inf', now, 'LIMIT', 0, wanted)
  if #jids < wanted then
    lazy_helpers().enqueue_due(queue, wanted - #jids, true)
    for _, jid in ipairs(call('ZREVRANGE', QUEUE .. queue .. '-work', 0, wanted - #jids - 1)) do
      jids[#jids + 1] = jid
    end
  end
  return jobs_json(jids)
end
