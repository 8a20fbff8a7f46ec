-- outcome  jid
--   Reply: JSON object: the fields of `o:<jid>`; nil if there are none
-- stuck  queue [cursor] [count=100]
--   Finds jobs of the queue that wait for something that will not end. Reasons: `gone`, `complete`, `itself` (or its
--   own group), `nothing`; or `failed`, if the policy is `wait`. Looks at 1000 dependencies in a call, chosen at random
--   if a job has more. Pass the cursor to the next call; '' marks the end.
--   Reply: JSON {jobs: [[jid, other, reason]], cursor}
-- group.open  group name [success list] [failure list] [complete list]
--   Creates a group with callbacks. Members are put with {"group": group} in the option `outcome`.
--   Reply: the group
-- group.close  group [incomplete]
--   Ends the list of members. The group ends when all of them have ended; with `incomplete`, which says that members
--   are missing, as failed.
--   Reply: the state: `running`, `complete` or `failed`
-- group.get  group
--   Reply: JSON {group, name, state, total, done, failed, skipped, canceled, left, reason, incomplete, at, ended}; nil
--   if it does not exist
-- group.jobs  group [offset=0] [count=100]
--   Reply: JSON list of [jid, state] in the order of the puts, at most 1000; state false: the job does not exist any
--   more
-- groups  [offset=0] [count=25]
--   Reply: JSON {total, groups}, newest first
-- Cost  O(k) for k jobs or groups
if command == 'outcome' then
  local fields = outcomes().fields_of(prefix .. 'o:' .. need('Outcome', 'jid', ARGV[3]))
  return next(fields) and encode(fields)
end

if command == 'stuck' then
  local queue = need('Stuck', 'queue', ARGV[3])
  local cursor = math.max(0, floor(need('Stuck', 'cursor', ARGV[4] and ARGV[4] ~= '' and ARGV[4] or 0, 'number')))
  local limit = math.max(1, math.min(floor(need('Stuck', 'count', ARGV[5] or STEP, 'number')), STEP))
  settings()
  local budget, found, seen = 10 * STEP, {}, 0
  local jids = call('ZRANGE', QUEUE .. queue .. '-depends', cursor, cursor + limit - 1)
  local pending = call('EXISTS', prefix .. 'pending') == 1 -- if so, lists may contain jobs that are complete
  for _, jid in ipairs(jids) do
    local others = call('SRANDMEMBER', JOB .. jid .. '-dependencies', math.max(1, budget))
    budget, seen = budget - #others - 1, seen + 1
    local reason, cause = not others[1] and not pending and 'nothing', nil
    for _, other in ipairs(others) do
      local state = call('HGET', JOB .. other, 'state')
      cause = other
      local group = not state and outcomes().fields_of(prefix .. 'g:' .. other).state
      if other == jid or group and outcomes().is_member(jid, other) then
        reason = 'itself'
      elseif state == 'failed' or group == 'failed' then
        reason = outcomes().policy_of(jid, other) == 'wait' and 'failed'
      elseif not pending then
        reason = (state or group) == 'complete' and 'complete' or not (state or group) and 'gone'
      end
      if reason then
        break
      end
    end
    if reason then
      found[#found + 1] = '[' .. encode(jid) .. ',' .. encode(cause or '') .. ',"' .. reason .. '"]'
    end
    if budget <= 0 then
      break
    end
  end
  return '{"jobs":' .. joined(found) .. ',"cursor":"'
    .. (seen < limit and seen == #jids and '' or cursor + seen) .. '"}'
end

if command == 'group.open' then
  local group, name = need('Group.Open', 'group', ARGV[3]), need('Group.Open', 'name', ARGV[4])
  settings()
  local key, fields = prefix .. 'g:' .. group, {'name', name, 'state', 'open', 'at', now, 'total', 0}
  for n = 5, #ARGV - 1, 2 do
    if ARGV[n] ~= 'success' and ARGV[n] ~= 'failure' and ARGV[n] ~= 'complete' then
      error('Group.Open(): Unknown option "' .. ARGV[n] .. '"')
    end
    outcomes().callbacks_of('Group.Open', ARGV[n], ARGV[n + 1])
    fields[#fields + 1], fields[#fields + 2] = ARGV[n], ARGV[n + 1]
  end
  if find(group, '%s') or group == '' then
    error('Group.Open(): The ID of a group must not be empty or contain spaces: "' .. group .. '"')
  elseif call('EXISTS', key, JOB .. group) > 0 then
    error('Group.Open(): Group ' .. group .. ' already exists')
  end
  call('HSET', key, unpack(fields))
  call('ZADD', prefix .. 'groups', now, group)
  call('ZADD', prefix .. 'open-groups', now, group)
  mark_once()
  return group
end

if command == 'group.close' then
  local group = need('Group.Close', 'group', ARGV[3])
  local key = prefix .. 'g:' .. group
  settings()
  local state = call('HGET', key, 'state')
  if not state then
    error('Group.Close(): Group ' .. group .. ' does not exist')
  end
  if state == 'open' then
    call('ZREM', prefix .. 'open-groups', group)
    call('HSET', key, 'state', 'running')
    if ARGV[4] == 'incomplete' then
      call('HSET', key, 'incomplete', 1)
    end
    outcomes().check_group(group)
    lazy_helpers().remove_from_groups()
  end
  mark_once()
  return call('HGET', key, 'state')
end

local function group_json(group)
  local fields = outcomes().fields_of(prefix .. 'g:' .. group)
  if not fields.state then
    return
  end
  local text = '{"group":' .. encode(group) .. ',"name":' .. encode(fields.name or '') .. ',"state":'
    .. encode(fields.state) .. ',"reason":' .. encode(fields.reason or false) .. ',"incomplete":'
    .. (fields.incomplete and 'true' or 'false')
  local left = tonumber(fields.total) or 0
  for _, name in ipairs({'total', 'done', 'failed', 'skipped', 'canceled', 'at', 'ended'}) do
    text = text .. ',"' .. name .. '":' .. (tonumber(fields[name]) or 0)
    if name ~= 'total' and name ~= 'at' and name ~= 'ended' then
      left = left - (tonumber(fields[name]) or 0)
    end
  end
  return text .. ',"left":' .. left .. '}'
end

if command == 'group.get' then
  return group_json(need('Group.Get', 'group', ARGV[3]))
end

if command == 'group.jobs' then
  local group = need('Group.Jobs', 'group', ARGV[3])
  local offset = math.max(0, floor(need('Group.Jobs', 'offset', ARGV[4] or 0, 'number')))
  local limit = math.max(1, math.min(floor(need('Group.Jobs', 'count', ARGV[5] or STEP, 'number')), 10 * STEP))
  local items = call('LRANGE', prefix .. 'g:' .. group .. '-jobs', offset, offset + limit - 1)
  for n, jid in ipairs(items) do
    items[n] = '[' .. encode(jid) .. ',' .. encode(call('HGET', JOB .. jid, 'state')) .. ']'
  end
  return joined(items)
end

if command == 'groups' then
  local offset = math.max(0, floor(need('Groups', 'offset', ARGV[3] or 0, 'number')))
  local limit = math.max(1, math.min(floor(need('Groups', 'count', ARGV[4] or 25, 'number')), 10 * STEP))
  local items = {}
  for _, group in ipairs(call('ZREVRANGE', prefix .. 'groups', offset, offset + limit - 1)) do
    items[#items + 1] = group_json(group)
  end
  return '{"total":' .. call('ZCARD', prefix .. 'groups') .. ',"groups":' .. joined(items) .. '}'
end
