-- failed                           Reply: JSON {group: count}
-- failed    group [start=0] [limit=25]   Reply: JSON {total, jobs: [jid]}, newest first
-- unfail    queue group [count=25] Reply: number of jobs of the group moved to the queue, oldest first
-- Cost      O(k) for k groups or jobs
if command == 'page' and ARGV[3] == 'failed' then
  local cursor, limit = page()
  local scanned = call('SSCAN', prefix .. 'failures', format('%.0f', cursor), 'COUNT', limit)
  local counts = {}
  for n, name in ipairs(scanned[2]) do
    counts[n] = encode(name) .. ':' .. call('LLEN', prefix .. 'f:' .. name)
  end
  return '{"items":{' .. table.concat(counts, ',') .. '},"cursor":"' .. (scanned[1] == '0' and '' or scanned[1]) .. '"}'
end

if command == 'failed' then
  local group = ARGV[3]
  if group then
    local start = need('Failed', 'start', ARGV[4] or 0, 'number')
    local limit = need('Failed', 'limit', ARGV[5] or 25, 'number')
    local key = prefix .. 'f:' .. group
    return '{"total":' .. call('LLEN', key) .. ',"jobs":' .. list(call('LRANGE', key, start, start + limit - 1)) .. '}'
  end
  local counts = {}
  for _, name in ipairs(call('SMEMBERS', prefix .. 'failures')) do
    counts[name] = call('LLEN', prefix .. 'f:' .. name)
  end
  return encode(counts)
end

if command == 'unfail' then
  local queue, group = need('Unfail', 'queue', ARGV[3]), need('Unfail', 'group', ARGV[4])
  local count = floor(need('Unfail', 'count', ARGV[5] or 25, 'number'))
  settings()
  local key, moved = prefix .. 'f:' .. group, 0
  local jids = count > 0 and call('LRANGE', key, -count, -1) or {}
  if jids[1] then
    call('LTRIM', key, 0, -1 - count)
  end
  if call('EXISTS', key) == 0 then
    call('SREM', prefix .. 'failures', group)
  end
  for _, jid in ipairs(jids) do
    lazy_helpers().trimmed[jid] = group
  end
  for n = #jids, 1, -1 do
    local jid = jids[n]
    local job = call('HMGET', JOB .. jid, 'priority', 'retries', 'failure', 'queue', 'state')
    if job[5] == 'failed' and call('EXISTS', prefix .. 'o:' .. jid) == 1 then
      outcomes().missed(jid, 'failed')
    end
    local blocked = job[1] and call('EXISTS', JOB .. jid .. '-dependencies') == 1
    if blocked and (job[5] == 'depends' or outcomes().wait_again(jid)) then
      moved = moved + 1 -- it did not run, since a job on which it depends had failed, perhaps one of these
    elseif job[1] then
      append_history(jid, moment, '"put"', '"q":' .. encode(queue))
      call('HSET', JOB .. jid, 'state', 'waiting', 'worker', '', 'expires', 0, 'queue', queue, 'remaining', job[2])
      call('ZADD', QUEUE .. queue .. '-work', (tonumber(job[1]) or 0) - now / 10000000000, jid)
      moved = moved + 1
      if fixed('unfail-clean') then
        lazy_helpers().unmark_failed(jid, job[3], job[4])
        call('HSET', JOB .. jid, 'failure', '{}')
      end
      if call('EXISTS', prefix .. 'o:' .. jid, JOB .. jid .. '-dependents') > 0 then
        outcomes().put_again(jid, true)
        outcomes().restored(jid)
      end
    end
  end
  if lazy_helpers_made then
    lazy_helpers().remove_from_groups()
  end
  if moved > 0 then
    if fixed('unfail-clean') then
      call('ZADD', prefix .. 'queues', 'NX', now, queue)
    end
    call('PUBLISH', prefix .. 'wake:' .. queue, now)
  end
  return moved
end
