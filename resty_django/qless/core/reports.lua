-- worker.report  worker report [id ...]
--   Stores a worker's report, a text of at most 16 384 bytes, and removes the requests with these ids.
--   Reply: list of the remaining requests to the worker, as JSON texts
-- worker.reports  worker ...
--   Reply: JSON list of {name, age, report, requests} of those that have a report, at most 100 workers; `report` and
--   each of `requests` as text, a missing request as ''
-- worker.request  worker quiet|resume|stop|stacks
--   Sends a request to a worker that reports. Replaces an earlier request of the same kind: `quiet`, `resume` and
--   `stop` are one kind.
--   Reply: integer: the id of the request
-- worker.request  worker scale slots
--   Requests a number of slots, 1 to 10 000.
--   Reply: the same
-- worker.stacks  worker
--   Reply: the stacks that the worker has sent, as text; nil: none in the last 120 seconds
-- worker.stacks  worker stacks
--   Stores a text of at most 262 144 bytes.
--   Reply: 1
-- Cost  O(1) for each worker
-- Uses two keys for a worker that other cores do not have: the hash `report:<worker>`, which expires 600 seconds after
-- the last report, and the string `stacks:<worker>`. A worker has at most one request of each kind: the latest.
local REQUEST_KINDS = {quiet = 'state', resume = 'state', stop = 'state', scale = 'slots', stacks = 'stacks'}

if command == 'worker.report' then
  local worker = need('Worker.Report', 'worker', ARGV[3])
  local report = need('Worker.Report', 'report', ARGV[4])
  if #report > 16384 then
    error('Worker.Report(): Arg "report" longer than 16384: ' .. #report)
  end
  settings()
  local key, left, _, confirmed = prefix .. 'report:' .. worker, {}, arguments(5)
  for _, kind in ipairs({'state', 'slots', 'stacks'}) do
    local request = call('HGET', key, kind)
    if request and confirmed[string.match(request, '^{"id":(%d+),') or ''] then
      call('HDEL', key, kind)
    elseif request then
      left[#left + 1] = request
    end
  end
  call('HSET', key, 'report', report, 'at', now)
  call('EXPIRE', key, 600)
  return left
end

if command == 'worker.reports' then
  local items = {}
  if #ARGV > 102 then
    error('Worker.Reports(): Arg "workers" longer than 100: ' .. #ARGV - 2)
  end
  settings()
  for n = 3, #ARGV do
    local fields = call('HMGET', prefix .. 'report:' .. ARGV[n], 'report', 'at', 'state', 'slots', 'stacks')
    if fields[1] then
      items[#items + 1] = encode({name = ARGV[n], age = now - (tonumber(fields[2]) or 0), report = fields[1],
        requests = {fields[3] or '', fields[4] or '', fields[5] or ''}})
    end
  end
  return joined(items)
end

if command == 'worker.request' then
  local worker = need('Worker.Request', 'worker', ARGV[3])
  local action = need('Worker.Request', 'action', ARGV[4])
  local kind, slots = REQUEST_KINDS[action], ''
  if not kind then
    error('Worker.Request(): Arg "action" not one of quiet, resume, stop, scale, stacks: ' .. action)
  elseif action == 'scale' then
    local count = need('Worker.Request', 'slots', ARGV[5], 'number')
    if count < 1 or count > 10000 or floor(count) ~= count then
      error('Worker.Request(): Arg "slots" not a whole number from 1 to 10000: ' .. ARGV[5])
    end
    slots = format(',"slots":%d', count)
  end
  settings()
  local key = prefix .. 'report:' .. worker
  if call('HEXISTS', key, 'report') == 0 then
    error('Worker.Request(): Worker ' .. worker .. ' does not report')
  end
  local id = call('HINCRBY', key, 'number', 1)
  call('HSET', key, kind, format('{"id":%d,"action":"%s","at":%.3f%s}', id, action, now, slots))
  call('PUBLISH', prefix .. 'w:' .. worker, '{"event":"request","id":' .. id .. '}')
  return id
end

if command == 'worker.stacks' then
  local worker, stacks = need('Worker.Stacks', 'worker', ARGV[3]), ARGV[4]
  local key = prefix .. 'stacks:' .. worker
  if not stacks then
    return call('GET', key)
  elseif #stacks > 262144 then
    error('Worker.Stacks(): Arg "stacks" longer than 262144: ' .. #stacks)
  end
  call('SET', key, stacks, 'EX', 120)
  return 1
end
