-- What the scripts beside this file begin with. The state of a key is an item of the shared dictionary, of kind bytes
-- (shdict/redis/lua/item.lua): numbers, packed as the module of the algorithm says.
-- Numbers that may have a fraction are replied packed, so that no bit is lost.
-- A key that holds something else ends the script with the error FOREIGN.
local BYTES = '4'

-- Each limit sends one text, packed doubles: the time to take in ms (0: the server's), whether to record (1 or 0), the
-- cost, and the numbers of its algorithm. The time is that of the last one; it may be `behind` the server's.
local now, behind = struct.unpack('<d', ARGV[#ARGV]), 60000
if now == 0 then
  behind = 0
  local clock = redis.call('TIME')
  now = clock[1] * 1000 + math.floor(clock[2] / 1000)
end

-- ms; the first request in each of them sets the expiry of a state, the others leave it.
local SLOT = 65536

local function same_slot(one, other)
  return math.floor(one / SLOT) == math.floor(other / SLOT)
end

-- The state, of `size` bytes at least, and that many if `exact`; nil: absent or expired.
local function load(key, size, exact)
  local item = redis.call('HMGET', key, 't', 'v', 'e')
  local kind, state, expiry = item[1], item[2], item[3]
  if not kind or (expiry ~= '0' and tonumber(expiry) <= now) then
    return nil
  elseif kind ~= BYTES or #state < size or (exact and #state ~= size) then
    error('FOREIGN')
  end
  return state
end

-- `life`: ms for which to keep it; 0: for ever; nil: as before. `old`: what load gave.
local function save(key, state, old, life)
  if not old then
    redis.call('DEL', key)
    redis.call('HSET', key, 't', BYTES, 'v', state, 'f', '0', 'e', life > 0 and string.format('%.0f', now + life) or '0')
  elseif life then
    redis.call('HSET', key, 'v', state, 'e', life > 0 and string.format('%.0f', now + life) or '0')
  else
    redis.call('HSET', key, 'v', state)
  end
  if life and life > 0 then
    redis.call('PEXPIRE', key, string.format('%.0f', life + behind))
  elseif life and old then
    redis.call('PERSIST', key)
  end
end

-- Fractions are dropped toward zero.
local function trunc(number)
  return number < 0 and math.ceil(number) or math.floor(number)
end
