-- Common beginning of the scripts in this folder. An item is one hash:
--   t  kind, a digit (codec.py)       v  payload (a whole number: decimal)
--   f  flags                          e  expiry in ms of the server's time; 0: none; -1: flushed
-- and a list has, in place of v,
--   a  number of its first item       l  length        and each item, kind byte and payload, under its number.
-- The key is removed `stale` ms after the expiry. A value is sent and replied as its kind and payload in one string.
-- A life is in ms; 0 or missing: forever.
local INT, FLOAT, LIST = '1', '2', '6'
local VALUE_FIELDS = 4

-- Tests pass the time to use instead of the server's as the last argument: @ms.
local now = tonumber(string.match(ARGV[#ARGV] or '', '^@(%d+)$'))
if now then
  ARGV[#ARGV] = nil
end

-- The time in ms; queried once, and only if something may expire.
local function time()
  if not now then
    local clock = redis.call('TIME')
    now = clock[1] * 1000 + math.floor(clock[2] / 1000)
  end
  return now
end

local function over(expiry)
  return expiry ~= '0' and tonumber(expiry) <= time()
end

-- Whether an item with this kind and expiry is live; false (from HMGET) means absent.
local function live(kind, expiry)
  return kind and not over(expiry)
end

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
