-- The length of a list.
-- KEYS    the list
-- Reply   the length, 0: absent or expired; -1: the key holds something else
-- Cost    O(1)
local list = redis.call('HMGET', KEYS[1], 't', 'e', 'l')
if not live(list[1], list[2]) then
  return 0
end
return list[1] == LIST and tonumber(list[3]) or -1
