-- Take an item from an end of a list; the last one takes the key with it.
-- KEYS    the list
-- ARGV    l or r
-- Reply   kind byte and payload of the item; nil: absent or expired; -1: the key holds something else
-- Cost    O(1)
local side = ARGV[1]
local list = redis.call('HMGET', KEYS[1], 't', 'e', 'a', 'l')
if not live(list[1], list[2]) then
  return false
elseif list[1] ~= LIST then
  return -1
end
local first, length = tonumber(list[3]), tonumber(list[4])
local at = side == 'l' and first or first + length - 1
local item = redis.call('HGET', KEYS[1], at)
if length == 1 then
  redis.call('DEL', KEYS[1])
else
  redis.call('HDEL', KEYS[1], at)
  redis.call('HSET', KEYS[1], 'a', side == 'l' and first + 1 or first, 'l', length - 1)
end
return item
