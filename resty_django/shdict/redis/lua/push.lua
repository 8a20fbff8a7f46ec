-- Put an item at an end of a list, which begins empty and without expiry where the key is absent or expired.
-- KEYS    the list
-- ARGV    l or r, kind byte and payload of the item
-- Reply   the length; -1: the key holds something else
-- Cost    O(1)
local side, added = unpack(ARGV)
local list = redis.call('HMGET', KEYS[1], 't', 'e', 'a', 'l')
local first, length = 0, 0
if live(list[1], list[2]) then
  if list[1] ~= LIST then
    return -1
  end
  first, length = tonumber(list[3]), tonumber(list[4])
elseif list[1] then
  redis.call('UNLINK', KEYS[1])
end
local at = first + length
if side == 'l' then
  first = first - 1
  at = first
end
length = length + 1
if length == 1 then
  redis.call('HSET', KEYS[1], 't', LIST, 'f', '0', 'e', '0', 'a', first, 'l', length, at, added)
else
  redis.call('HSET', KEYS[1], 'a', first, 'l', length, at, added)
end
return length
