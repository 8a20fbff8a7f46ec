-- The second half of update: write, if the value is still the one that the function got.
-- KEYS    the item, [the stream of the entry]
-- ARGV    the old value ('': absent or expired), the new one ('': delete), [life, stale ms (else as it is)],
--         [entry: entry.lua]
-- Reply   nil: done; else the value that is there instead ('': none)
-- Cost    O(1) and the comparison of the old value
local old, new, life, stale = unpack(ARGV)
local item = redis.call('HMGET', KEYS[1], 't', 'v', 'e', 'f')
local there = live(item[1], item[3])
local found = there and item[1] .. (item[2] or '') or ''
if found ~= old then
  return found
elseif new == '' then
  redis.call('UNLINK', KEYS[1])
elseif there and not life then
  redis.call('HSET', KEYS[1], 't', string.sub(new, 1, 1), 'v', string.sub(new, 2))
else
  save(KEYS[1], new, life, stale, there and item[4])
end
append()
return false
