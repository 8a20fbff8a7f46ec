-- put       worker queue jid klass data delay [priority p] [tags json] [retries n] [depends json] [txid text]
--                                               [unique word]
--           Reply: jid. A job that exists is moved, and keeps the priority, tags, retries and dependencies not given.
--           With `unique` it is left as it is: `ever`; or `pending`: unless it is complete or failed
-- requeue   the same for a job that exists
-- put.many  worker queue, and for each job: jid klass data delay options (a JSON object of the options above, or '')
--           Reply: how many. All are checked before the first is written
-- Cost      O(log n) in the length of the queue; and one step for each tag and dependency
if command == 'put' or command == 'requeue' or command == 'put.many' then
  local worker, queue = need('Put', 'worker', ARGV[3]), need('Put', 'queue', ARGV[4])
  local queue_text = encode(queue)

  local function put(jid, klass, data, delay, priority, tags, retries, depends, txid, unique)
    local key = JOB .. jid
    local old = call('HMGET', key, 'state', 'queue', 'worker', 'priority', 'tags', 'retries', 'failure', 'scheduled')
    local state, holder, kept = old[1], old[3], old[5]
    if unique and state and (unique == 'ever' or state ~= 'complete' and state ~= 'failed') then
      return
    end
    priority, retries = priority or tonumber(old[4]) or 0, retries or tonumber(old[6]) or 5
    if kept and #kept > 2 then
      seldom().tag(jid, kept, -1)
    end
    if depends and depends[1] then
      local wanted, unwanted = {}, {}
      for _, other in ipairs(depends) do
        wanted[other] = true
      end
      for _, other in ipairs(call('SMEMBERS', key .. '-dependencies')) do
        unwanted[#unwanted + 1] = not wanted[other] and other or nil
      end
      seldom().link(jid, unwanted, true)
    end

    call('PUBLISH', prefix .. 'log', '{"event":"put","jid":' .. encode(jid) .. ',"queue":' .. queue_text .. '}')
    happened(jid, moment, '"put"', '"q":' .. queue_text, not state)
    if state then
      for _, place in ipairs(old[2] ~= '' and {'-work', '-locks', '-depends', '-scheduled'} or {}) do
        call('ZREM', QUEUE .. old[2] .. place, jid)
      end
      if holder and holder ~= '' then
        call('ZREM', prefix .. 'w:' .. holder .. ':jobs', jid)
        if holder ~= worker then
          seldom().lock_lost(jid, holder)
        end
      end
      if state == 'complete' then
        call('ZREM', prefix .. 'completed', jid)
      elseif state == 'failed' then
        seldom().unsink(jid, old[7], fixed('failed-stats') and old[2] or queue)
      end
      if old[8] then
        call('HDEL', key, 'scheduled')
      end
      call('DEL', prefix .. 'x:' .. jid)
    end
    tags = tags and (tags[1] and encode(tags) or '{}') or kept or '{}'
    if #tags > 2 then
      seldom().tag(jid, tags, 1)
    end

    if depends then
      seldom().link(jid, depends)
    end
    local due = now
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
    if txid then
      call('HSET', key, 'txid', txid)
    end
    if due then
      call('PUBLISH', prefix .. 'wake:' .. queue, due)
    elseif delay > 0 then
      call('HSET', key, 'scheduled', now + delay)
    end
    if rare and call('ZSCORE', prefix .. 'tracked', jid) then
      call('PUBLISH', prefix .. 'put', jid)
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
    local priority, tags, retries, depends, txid, unique
    for n = 9, #ARGV, 2 do
      local name, value = ARGV[n], ARGV[n + 1]
      if name == 'priority' then
        priority = need('Put', name, value, 'number')
      elseif name == 'tags' then
        tags = need('Put', name, value, 'list')
      elseif name == 'retries' then
        retries = need('Put', name, value, 'number')
      elseif name == 'depends' then
        depends = need('Put', name, value, 'list')
      elseif name == 'txid' then
        txid = value
      elseif name == 'unique' then
        unique = value
      end
    end
    if command == 'requeue' and call('EXISTS', JOB .. jid) == 0 then
      error('Requeue(): Job ' .. jid .. ' does not exist')
    end
    if depends then
      seldom().refuse_cycle('Put', jid, depends)
    end
    put(jid, klass, ARGV[7], delay, priority, tags, retries, depends, txid, unique)
    call('ZADD', prefix .. 'queues', 'NX', now, queue)
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
      local given = need('Put', 'options', ARGV[n + 4], 'json')
      if type(given) ~= 'table' then
        error('Put(): Arg "options" not a JSON object: ' .. ARGV[n + 4])
      end
      for name, kind in pairs({priority = 'number', tags = 'list', retries = 'number', depends = 'list'}) do
        if given[name] ~= nil then
          given[name] = need('Put', name, kind == 'list' and encode(given[name]) or tostring(given[name]), kind)
        end
      end
      options[n], planned[ARGV[n]] = given, given.depends
    end
  end
  for jid, depends in pairs(planned) do
    seldom().refuse_cycle('Put', jid, depends, planned)
  end
  for n = 5, #ARGV, 5 do
    local given = options[n] or {}
    put(ARGV[n], ARGV[n + 1], ARGV[n + 2], tonumber(ARGV[n + 3]), given.priority, given.tags, given.retries,
      given.depends, given.txid and tostring(given.txid), given.unique)
  end
  call('ZADD', prefix .. 'queues', 'NX', now, queue)
  return (#ARGV - 4) / 5
end
