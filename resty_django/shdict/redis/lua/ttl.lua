-- How long an item has to live.
-- KEYS    the item
-- Reply   ms, 0: for ever; nil: absent or expired
-- Cost    O(1)
local expiry = redis.call('HGET', KEYS[1], 'e')
if not expiry or expiry == '0' then
  return expiry and 0
end
local left = tonumber(expiry) - time()
return left > 0 and left
