-- Comes after item.lua in scripts that store an item or set its expiry. A life is in ms; 0 or missing: forever.
local VALUE_FIELDS = 4

-- The key's own expiry.
local function lives(key, life, stale)
  if (life or '0') == '0' then
    redis.call('PERSIST', key)
  else
    redis.call('PEXPIRE', key, life + stale)
  end
end

local function expiry_after(life)
  return (life or '0') == '0' and '0' or time() + life
end

-- The first write may fail if memory is full; then nothing has changed.
local function save(key, value, life, stale, flags)
  local kind, payload, expiry = string.sub(value, 1, 1), string.sub(value, 2), expiry_after(life)
  local new = redis.call('HSET', key, 't', kind, 'v', payload, 'f', flags or '0', 'e', expiry)
  if new ~= 0 and new ~= VALUE_FIELDS then -- over a list
    redis.call('DEL', key)
    redis.call('HSET', key, 't', kind, 'v', payload, 'f', flags or '0', 'e', expiry)
  end
  lives(key, life, stale)
end
