-- Add to a number. Whole numbers are added by the server, exactly; floats as doubles, as Python does.
-- KEYS    the item
-- ARGV    number to add, [value of a new item (O: it has more than 64 bits), [its life, stale ms]]
-- Reply   the sum; nil: absent or expired, and no new one given; N: not a number; O: more than 64 bits
-- Cost    O(1)
local EXACT = 2 ^ 53 -- whole numbers below it are exact as numbers of Lua
local by, new, life, stale = unpack(ARGV)
local item = redis.call('HMGET', KEYS[1], 't', 'v', 'e')

if not live(item[1], item[3]) then
  if new and new ~= 'O' then
    save(KEYS[1], new, life, stale)
  end
  return new or false
elseif item[1] ~= INT and item[1] ~= FLOAT then
  return 'N'
elseif item[1] == INT and string.sub(by, 1, 1) == INT then
  local sum = redis.pcall('HINCRBY', KEYS[1], 'v', string.sub(by, 2))
  if type(sum) ~= 'number' then
    return string.find(sum.err, 'overflow', 1, true) and 'O' or sum
  elseif sum > -EXACT and sum < EXACT then
    return INT .. string.format('%.0f', sum)
  end
  return INT .. redis.call('HGET', KEYS[1], 'v')
end

local function number(value)
  local payload = string.sub(value, 2)
  return string.sub(value, 1, 1) == INT and tonumber(payload) or (struct.unpack('<d', payload))
end

local sum = struct.pack('<d', number(item[1] .. item[2]) + number(by))
redis.call('HSET', KEYS[1], 't', FLOAT, 'v', sum)
return FLOAT .. sum
