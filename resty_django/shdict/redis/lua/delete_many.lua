-- Delete items.
-- KEYS    items, [the stream of the entry]
-- ARGV    [entry: entry.lua]
-- Reply   for each 1: it was there, and had not expired; or 0
-- Cost    O(n); the memory of large items is freed behind the scene
local replies = {}
for n, key in ipairs(KEYS) do
  local item = redis.call('HMGET', key, 't', 'e')
  replies[n] = live(item[1], item[2]) and 1 or 0
  redis.call('UNLINK', key) -- an absent one, too: append must not be the first write
end
append()
return replies
