-- Store a value where none exists, or return the existing one.
-- KEYS    the item, [the stream of the entry]
-- ARGV    value, [life, stale ms], [entry: entry.lua]
-- Reply   nil: stored; else the existing value. A list: its kind alone.
-- Cost    O(1); O(n) over an expired list of n items
local item = redis.call('HMGET', KEYS[1], 't', 'v', 'e')
if live(item[1], item[3]) then
  return item[1] .. (item[2] or '')
end
save(KEYS[1], unpack(ARGV))
append()
return false
