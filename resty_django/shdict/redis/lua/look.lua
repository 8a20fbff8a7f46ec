-- An item as it is, expired or not.
-- KEYS    the item
-- Reply   {value, flags, 1 if it has expired}; nil: absent
-- Cost    O(1)
local item = redis.call('HMGET', KEYS[1], 't', 'v', 'f', 'e')
if not item[1] then
  return false
end
return {item[1] .. (item[2] or ''), item[3], over(item[4]) and 1 or 0}
