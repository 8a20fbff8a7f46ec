-- worker.alive  worker queue ...
--   Records that the worker is alive and serves these queues.
--   Reply: 1
-- workers.alive
--   Reply: JSON list of {name, age, queues} of the workers that call `worker.alive`, latest first; `age` in seconds
-- Cost  O(log n) for n such workers, plus one step for each worker dropped (at most 20); O(n) to list them
-- Uses two keys that other cores do not have: the zset `alive` (worker -> time of its last report) and the hash
-- `alive-queues` (worker -> JSON). Workers that have not reported for 600 seconds are dropped, also from `workers`.
-- The command `workers` handles workers that have never reported.
if command == 'worker.alive' then
  local worker = need('Worker.Alive', 'worker', ARGV[3])
  settings()
  local queues, key = arguments(4), prefix .. 'alive'
  call('ZADD', key, now, worker)
  call('HSET', prefix .. 'alive-queues', worker, queues[1] and encode(queues) or '{}')
  call('ZADD', prefix .. 'workers', now, worker)
  for _, gone in ipairs(call('ZRANGEBYSCORE', key, '-inf', now - 600, 'LIMIT', 0, 20)) do
    call('ZREM', key, gone)
    call('HDEL', prefix .. 'alive-queues', gone)
    call('ZREM', prefix .. 'workers', gone)
  end
  return 1
end

if command == 'workers.alive' then
  settings()
  local workers, items = call('ZREVRANGE', prefix .. 'alive', 0, -1, 'WITHSCORES'), {}
  for n = 1, #workers, 2 do
    items[#items + 1] = '{"name":' .. encode(workers[n]) .. ',"age":' .. now - workers[n + 1] .. ',"queues":'
      .. (call('HGET', prefix .. 'alive-queues', workers[n]) or '{}') .. '}'
  end
  return joined(items)
end
