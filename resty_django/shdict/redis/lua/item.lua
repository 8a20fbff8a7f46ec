-- Common beginning of the scripts in this folder. An item is one hash:
--   t  kind, a digit (codec.py)       v  payload (a whole number: decimal)
--   f  flags                          e  expiry in ms of the server's time; 0: none; -1: flushed
-- and a list has, in place of v,
--   a  number of its first item       l  length        and each item, kind byte and payload, under its number.
-- The key is removed `stale` ms after the expiry. A value is sent and replied as its kind and payload in one string.
local INT, FLOAT, LIST = '1', '2', '6'

-- Tests pass the time to use instead of the server's as the last argument: @ms.
local last = ARGV[#ARGV]
local now = last and tonumber(string.match(last, '^@(%d+)$'))
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
