-- Store a value where there is none.
-- KEYS    the item
-- ARGV    value, [life, stale ms, [flags]]
-- Reply   1: stored; nil: there is an item
-- Cost    O(1); O(n) over an expired list of n items
local expiry = redis.call('HGET', KEYS[1], 'e')
if expiry and not over(expiry) then
  return false
end
save(unpack(ARGV))
return 1
