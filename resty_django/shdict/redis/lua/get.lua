-- The value of an item.
-- KEYS    the item
-- Reply   the value; nil: absent or expired. A list: its kind alone.
-- Cost    O(1)
local item = redis.call('HMGET', KEYS[1], 't', 'v', 'e')
if not live(item[1], item[3]) then
  return false
end
return item[1] .. (item[2] or '')
