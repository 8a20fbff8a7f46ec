-- Store a value where there is none.
-- KEYS    the item, [the stream of the entry]
-- ARGV    value, [life, stale ms, [flags]], [entry: entry.lua]
-- Reply   1: stored; nil: there is an item
-- Cost    O(1); O(n) over an expired list of n items
local expiry = redis.call('HGET', KEYS[1], 'e')
if expiry and not over(expiry) then
  return false
end
save(KEYS[1], unpack(ARGV))
append()
return 1
