-- Store a value in place of another.
-- KEYS    the item
-- ARGV    value, [life, stale ms, [flags]]
-- Reply   1: stored; nil: absent or expired
-- Cost    O(1); O(n) over a list of n items
local expiry = redis.call('HGET', KEYS[1], 'e')
if not expiry or over(expiry) then
  return false
end
save(KEYS[1], unpack(ARGV))
return 1
