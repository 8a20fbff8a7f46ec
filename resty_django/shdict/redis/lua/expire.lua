-- Set a new life for an item: any, or only one with the given value.
-- KEYS    the item
-- ARGV    life, stale ms, [value]
-- Reply   1: it existed (with the value), and had not expired; else nil
-- Cost    O(1)
local life, stale, value = unpack(ARGV)
local item = redis.call('HMGET', KEYS[1], 't', 'e', value and 'v' or 'e')
if not live(item[1], item[2]) or (value and item[1] .. (item[3] or '') ~= value) then
  return false
end
lives(KEYS[1], life, stale) -- first, since it may be done when memory is full, and what follows it too
redis.call('HSET', KEYS[1], 'e', expiry_after(life))
return 1
