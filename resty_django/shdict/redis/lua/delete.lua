-- Delete an item: any, or only one that holds a value.
-- KEYS    the item, [the stream of the entry]
-- ARGV    [value], [entry: entry.lua]
-- Reply   1: it was there (with the value), and had not expired; else nil
-- Cost    O(1); the memory of a large item is freed behind the scene
local value = ARGV[1]
local item = redis.call('HMGET', KEYS[1], 't', 'e', value and 'v' or 'e')
local there = live(item[1], item[2])
if value and not (there and item[1] .. (item[3] or '') == value) then
  return false
end
redis.call('UNLINK', KEYS[1])
append()
return there and 1
