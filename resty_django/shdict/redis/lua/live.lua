-- Find the items that exist and have not expired.
-- KEYS    items
-- Reply   for each 1, or 0
-- Cost    O(n)
local replies = {}
for n, key in ipairs(KEYS) do
  local expiry = redis.call('HGET', key, 'e')
  replies[n] = live(expiry, expiry) and 1 or 0
end
return replies
