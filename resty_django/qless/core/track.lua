-- track
--   Reply: JSON {jobs: [job], expired: [jid]}, oldest tracked first
-- track  track|untrack jid
--   Starts or stops tracking. The words are case-insensitive.
--   Reply: JSON 1 if this changed anything, else 0
-- tag  add|remove jid tag ...
--   Reply: JSON list of the job's tags
-- tag  get tag [offset=0] [count=25]
--   Reply: JSON {total, jobs: [jid]}, oldest tagging first
-- tag  top [offset=0] [count=25]
--   Reply: JSON list of the tags used twice or more, most used first
-- Cost  O(k log n) for k jobs or tags
if command == 'track' or command == 'page' and ARGV[3] == 'tracked' then
  local action, jid = ARGV[3] and string.lower(ARGV[3]), ARGV[4]
  if not action or command == 'page' then
    local cursor, limit = page()
    local tracked = call('ZRANGE', prefix .. 'tracked', cursor, cursor + limit - 1)
    local jobs, expired = jobs_json(tracked, true)
    return paged('{"jobs":' .. jobs .. ',"expired":' .. list(expired) .. '}', #tracked, cursor, limit)
  elseif action ~= 'track' and action ~= 'untrack' then
    error('Track(): Unknown action "' .. ARGV[3] .. '"')
  end
  need('Track', 'jid', jid)
  settings()
  local there = call('EXISTS', JOB .. jid) == 1
  if not there and not (action == 'untrack' and fixes == 'all') then
    error('Track(): Job does not exist')
  end
  call('PUBLISH', prefix .. action, jid)
  local key = prefix .. 'tracked'
  return tostring(action == 'track' and call('ZADD', key, now, jid) or call('ZREM', key, jid))
end

if command == 'tag' then
  local title, action = 'Tag', ARGV[3]
  if action == 'add' or action == 'remove' then
    local jid = need(title, 'jid', ARGV[4])
    settings()
    local tags = call('HGET', JOB .. jid, 'tags')
    if not tags then
      error('Tag(): Job ' .. jid .. ' does not exist')
    end
    tags = changed_tags(tags, 5, action == 'add')
    lazy_helpers().tag(jid, (arguments(5)), action == 'add' and 1 or -1)
    call('HSET', JOB .. jid, 'tags', tags)
    note_change(jid)
    return tags
  elseif action == 'get' then
    local name = need(title, 'tag', ARGV[4])
    local offset = need(title, 'offset', ARGV[5] or 0, 'number')
    local number = need(title, 'count', ARGV[6] or 25, 'number')
    local key = prefix .. 't:' .. name
    return '{"total":' .. call('ZCARD', key) .. ',"jobs":' .. list(call('ZRANGE', key, offset, offset + number - 1))
      .. '}'
  elseif action == 'top' then
    local offset = need(title, 'offset', ARGV[4] or 0, 'number')
    local number = need(title, 'count', ARGV[5] or 25, 'number')
    local often = call('ZCOUNT', prefix .. 'tags', 2, '+inf')
    local last = number < 0 and often or math.min(often, offset + number)
    return list(offset >= 0 and last > offset and call('ZREVRANGE', prefix .. 'tags', offset, last - 1) or {})
  end
  error('Tag(): First argument must be "add", "remove", "get" or "top"')
end
