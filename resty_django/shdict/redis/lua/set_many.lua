-- Store values.
-- KEYS    items, [the stream of the entry]
-- ARGV    for each its value and its life; then stale ms, flags, [entry: entry.lua], which is appended if one is stored
-- Reply   for each 1: stored; or 0: there is no space, and the item is as it was
-- Cost    O(n)
local stored_any
local replies, stale, flags = {}, ARGV[2 * #KEYS + 1], ARGV[2 * #KEYS + 2]
for n, key in ipairs(KEYS) do
  local stored, fault = pcall(save, key, ARGV[2 * n - 1], ARGV[2 * n], stale, flags)
  local text = not stored and (type(fault) == 'table' and fault.err or tostring(fault))
  if text and not string.find(text, 'OOM', 1, true) then
    return redis.error_reply(text)
  end
  replies[n] = stored and 1 or 0
  stored_any = stored_any or stored
end
if stored_any then
  append()
end
return replies
