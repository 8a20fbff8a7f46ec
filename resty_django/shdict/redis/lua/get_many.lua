-- The values of items.
-- KEYS    items
-- Reply   {lengths, separated by commas; the values, one after the other}. A length of 0: absent or expired. A list: its
--         kind alone. Clients parse two strings much faster than many.
-- Cost    O(n)
local lengths, parts = {}, {}
for n, key in ipairs(KEYS) do
  local item = redis.call('HMGET', key, 't', 'v', 'e')
  if live(item[1], item[3]) then
    local payload = item[2] or ''
    lengths[n] = #payload + 1
    parts[#parts + 1] = item[1]
    parts[#parts + 1] = payload
  else
    lengths[n] = 0
  end
end
return {table.concat(lengths, ','), table.concat(parts)}
