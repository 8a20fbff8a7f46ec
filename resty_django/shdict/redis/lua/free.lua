-- Delete the items that have expired.
-- KEYS    items
-- Reply   for each 1: it had; or 0
-- Cost    O(n)
local replies = {}
for n, key in ipairs(KEYS) do
  local expiry = redis.call('HGET', key, 'e')
  replies[n] = expiry and over(expiry) and redis.call('UNLINK', key) or 0
end
return replies
