-- Mark items expired; they stay to be read as stale ones.
-- KEYS    items
-- ARGV    stale ms
-- Reply   for each 1: it was there, and had not expired; or 0
-- Cost    O(n)
local stale = ARGV[1]
local replies = {}
for n, key in ipairs(KEYS) do
  local expiry = redis.call('HGET', key, 'e')
  replies[n] = live(expiry, expiry) and 1 or 0
  if replies[n] == 1 and stale == '0' then
    redis.call('UNLINK', key)
  elseif replies[n] == 1 then
    redis.call('PEXPIRE', key, stale) -- first, since it may be done when memory is full, and what follows it too
    redis.call('HSET', key, 'e', '-1')
  end
end
return replies
