-- The remaining life of an item.
-- KEYS    the item
-- Reply   ms, 0: forever; nil: absent or expired
-- Cost    O(1)
local expiry = redis.call('HGET', KEYS[1], 'e')
if not expiry or expiry == '0' then
  return expiry and 0
end
local left = tonumber(expiry) - time()
return left > 0 and left
