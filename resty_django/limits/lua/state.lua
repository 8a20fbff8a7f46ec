-- Common beginning of the other scripts in this folder. The state of a key is an item of the shared dictionary, of kind
-- bytes (shdict/redis/lua/item.lua): numbers, packed as in the module of the algorithm.
-- Replies contain packed numbers if they may have a fraction, so that no bit is lost.
-- If a key contains something else, the script ends with the error FOREIGN.
local BYTES = '4'

-- Each limit sends one argument, packed doubles: the time in ms (0: the server's), whether to record (1 or 0), the
-- cost, and the configuration of its algorithm. The last limit's time is used; it may be `behind` the server's.
local now, behind = struct.unpack('<d', ARGV[#ARGV]), 60000
if now == 0 then
  behind = 0
  local clock = redis.call('TIME')
  now = clock[1] * 1000 + math.floor(clock[2] / 1000)
end

-- ms of a time slot; the first request in each slot sets the expiry of a state, the others do not change it.
local KEEP_SLOT_MS = 65536

local function same_slot(one, other)
  return math.floor(one / KEEP_SLOT_MS) == math.floor(other / KEEP_SLOT_MS)
end

-- Returns the state, of at least (if `exact`: exactly) `size` bytes; nil: absent or expired.
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

-- `keep_ms`: ms for which to keep it; 0: indefinitely; nil: as before. `old`: the result of load.
local function save(key, state, old, keep_ms)
  if not old then
    local expiry = keep_ms > 0 and string.format('%.0f', now + keep_ms) or '0'
    redis.call('DEL', key)
    redis.call('HSET', key, 't', BYTES, 'v', state, 'f', '0', 'e', expiry)
  elseif keep_ms then
    redis.call('HSET', key, 'v', state, 'e', keep_ms > 0 and string.format('%.0f', now + keep_ms) or '0')
  else
    redis.call('HSET', key, 'v', state)
  end
  if keep_ms and keep_ms > 0 then
    redis.call('PEXPIRE', key, string.format('%.0f', keep_ms + behind))
  elseif keep_ms and old then
    redis.call('PERSIST', key)
  end
end

-- Drops the fraction (rounds toward zero).
local function trunc(number)
  return number < 0 and math.ceil(number) or math.floor(number)
end
