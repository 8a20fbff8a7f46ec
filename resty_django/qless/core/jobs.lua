-- get       jid                    Reply: JSON of the job; nil: there is none
-- multiget  jid ...                Reply: JSON list; unknown jids are left out
-- jobs      complete [offset=0] [count=25]                                      Reply: jids, newest first
-- jobs      running|stalled|scheduled|depends|recurring queue [offset] [count]  Reply: jids, lowest score first
-- jobs      waiting queue [offset] [count]                                      Reply: jids in the order of pop
-- search    [state s] [klass k] [queue q] [cursor c] [count=25] [scan=1000]
--           Reply: JSON {jobs: [jid], cursor}, where the cursor goes into the next call; '' is the end
-- result    jid                    Reply: JSON {jid, state, result, progress, message, at}; nil: there is no such job
-- Cost      O(k) for k jobs replied, or looked at by search
if command == 'get' then
  local jid = need('Get', 'jid', ARGV[3])
  local job = read(jid, true)
  job[TRACKED] = call('ZSCORE', prefix .. 'tracked', jid)
  return job[KLASS] and show(jid, job, true)
end

if command == 'multiget' then
  local jids = {}
  for n = 3, #ARGV do
    jids[n - 2] = ARGV[n]
  end
  return show_all(jids)
end

if command == 'jobs' then
  local title, kind, first = 'Jobs', need('Jobs', 'type', ARGV[3]), 5
  local places = {waiting = '-work', running = '-locks', stalled = '-locks', scheduled = '-scheduled',
    depends = '-depends', recurring = '-recur'}
  if kind == 'complete' then
    first = 4
  elseif not places[kind] then
    error('Jobs(): Unknown type "' .. kind .. '"')
  end
  local queue = kind ~= 'complete' and need(title, 'queue', ARGV[4])
  local offset = need(title, 'offset', ARGV[first] or 0, 'number')
  local number = need(title, 'count', ARGV[first + 1] or 25, 'number')
  settings()
  local last = offset + number - 1
  if kind == 'complete' then
    return call('ZREVRANGE', prefix .. 'completed', offset, last)
  end
  local key = QUEUE .. queue .. places[kind]
  if kind == 'running' then
    return call('ZRANGEBYSCORE', key, now, '+inf', 'LIMIT', offset, number)
  elseif kind == 'stalled' then
    return call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', offset, number)
  elseif kind == 'recurring' then
    return call('ZRANGEBYSCORE', key, '-inf', '+inf', 'LIMIT', offset, number)
  elseif kind == 'waiting' then
    return call('ZREVRANGE', key, offset, number < 0 and -1 or last)
  elseif kind == 'scheduled' then
    seldom().bring_due(queue, -1)
  end
  return call('ZRANGE', key, offset, last)
end

if command == 'search' then
  local title, given = 'Search', {}
  for n = 3, #ARGV, 2 do
    given[ARGV[n]] = need(title, ARGV[n], ARGV[n + 1])
  end
  local wanted = need(title, 'count', given.count or 25, 'number')
  local scan = need(title, 'scan', given.scan or 1000, 'number')
  local at, offset = string.match(given.cursor or '1:0', '^(%d+):(%d+)$')
  at, offset = tonumber(at), tonumber(offset)
  if not at then
    error('Search(): Arg "cursor" not from an answer of search: ' .. given.cursor)
  elseif wanted < 1 or scan < 1 then
    error('Search(): Args "count" and "scan" must be 1 or more')
  end
  local states = {{'waiting', '-work'}, {'running', '-locks'}, {'scheduled', '-scheduled'}, {'depends', '-depends'},
    {'recurring', '-recur'}, {'failed'}, {'complete'}}
  local sources, known = {}, not given.state
  for _, state in ipairs(states) do
    local name, place = unpack(state)
    known = known or name == given.state
    if given.state and name ~= given.state then
      place = nil
    elseif place then
      for _, queue in ipairs(given.queue and {given.queue} or call('ZRANGE', prefix .. 'queues', 0, -1)) do
        sources[#sources + 1] = {'ZRANGE', QUEUE .. queue .. place, name == 'recurring' and prefix .. 'r:' or JOB}
      end
    elseif name == 'complete' then
      sources[#sources + 1] = not given.queue and {'ZREVRANGE', prefix .. 'completed', JOB} or nil
    else
      local groups = call('SMEMBERS', prefix .. 'failures')
      table.sort(groups)
      for _, group in ipairs(groups) do
        sources[#sources + 1] = {'LRANGE', prefix .. 'f:' .. group, JOB}
      end
    end
  end
  if not known then
    error('Search(): Unknown state "' .. given.state .. '"')
  end
  local found = {}
  while at <= #sources and scan > 0 and #found < wanted do
    local kind, key, hashes = unpack(sources[at])
    local part = math.min(scan, 100)
    local jids = call(kind, key, offset, offset + part - 1)
    for _, jid in ipairs(jids) do
      local job = call('HMGET', hashes .. jid, 'klass', 'queue')
      offset = offset + 1
      if job[1] and (not given.klass or job[1] == given.klass) and (not given.queue or job[2] == given.queue) then
        found[#found + 1] = jid
        if #found == wanted then
          break
        end
      end
    end
    scan = scan - math.max(#jids, 1)
    if #jids < part and #found < wanted then
      at, offset = at + 1, 0
    end
  end
  return '{"jobs":' .. list(found) .. ',"cursor":"' .. (at <= #sources and at .. ':' .. offset or '') .. '"}'
end

if command == 'result' then
  local jid = need('Result', 'jid', ARGV[3])
  local state = call('HGET', JOB .. jid, 'state')
  if not state then
    return
  end
  local known = call('HMGET', prefix .. 'x:' .. jid, 'result', 'progress', 'message', 'at')
  return '{"jid":' .. encode(jid) .. ',"state":"' .. state .. '","result":' .. encode(known[1]) .. ',"progress":'
    .. encode(tonumber(known[2]) or false) .. ',"message":' .. encode(known[3]) .. ',"at":'
    .. encode(tonumber(known[4]) or false) .. '}'
end
