-- algorithms/token_bucket.py on the server.
-- Numbers  interval (ms), capacity, quantum, max_wait (ms), clamp (1 or 0), keep (s; 0: indefinitely), least (tokens),
--          whole (ms), low (tokens)
local token_bucket = {}

local PARTS = 4096

local function stock(key)
  local state = load(key, 18, true)
  if state then
    local tokens, last, parts = struct.unpack('<i8i8I2', state)
    return state, tokens, last + parts / PARTS
  end
end

local function packed(tokens, last)
  local whole = math.floor(last)
  return struct.pack('<i8i8I2', trunc(tokens), whole, math.floor((last - whole) * PARTS))
end

-- Returns the ms until all owed tokens are refilled.
local function time_to(left, since, interval, quantum)
  return math.floor((-left + quantum - 1) / quantum) * interval - since
end

-- Returns tokens and last tick for a request before the last tick, and whether ticks restart.
local function set_back(tokens, last, cost, interval, capacity, quantum, max_wait, clamp, whole)
  if last - now <= whole then
    local ticks = clamp == 1 and 0 or math.floor((now - last) / interval)
    local before, at = tokens < capacity and tokens + ticks * quantum or tokens, last + ticks * interval
    if before >= cost or time_to(before - cost, now - at, interval, quantum) <= max_wait + whole then
      return before, at, false
    end
  end
  if tokens < cost and time_to(tokens - cost, 0, interval, quantum) > max_wait then
    tokens = math.min(cost - math.floor(max_wait / interval) * quantum, capacity)
  end
  return tokens, now, true
end

-- Returns the state, tokens and last tick after the refill for a request of that cost, the last tick before it, and
-- whether to store this even if the request is refused.
local function refilled(key, cost, interval, capacity, quantum, max_wait, clamp, least, whole)
  local state, tokens, last = stock(key)
  if not state then
    return nil, capacity, now, now, true
  end
  local before, anew = last, true
  tokens = math.max(math.min(tokens, capacity), least)
  if now >= last then
    local ticks = math.floor((now - last) / interval)
    last = last + ticks * interval
    if tokens < capacity then
      tokens = math.min(tokens + ticks * quantum, capacity)
    end
  else
    tokens, last, anew = set_back(tokens, last, cost, interval, capacity, quantum, max_wait, clamp, whole)
  end
  return state, tokens, last, before, anew
end

local LONGEST = 1e12

-- `taken`: whether tokens were taken.
local function store(key, tokens, last, taken, state, before, interval, quantum, keep, low)
  local life
  if tokens < 0 and keep > 0 then
    life = math.min(keep * 1000 + math.ceil(-tokens / quantum) * interval, LONGEST)
  elseif not state or not same_slot(now, before) or (taken and tokens < low) then
    life = keep * 1000
  end
  save(key, packed(tokens, last), state, life)
end

-- `commit`: whether to record (nil: as in the arguments).
-- Reply   tokens left with this request and ms since the last tick, packed; and whether it is refused
-- Cost    O(1)
function token_bucket.incoming(key, sent, commit)
  local _, record, cost, interval, capacity, quantum, max_wait, clamp, keep, least, whole, low =
    struct.unpack('<dddddddddddd', sent)
  local state, tokens, last, before, anew =
    refilled(key, cost, interval, capacity, quantum, max_wait, clamp, least, whole)
  local left = tokens - cost
  local wait = left < 0 and time_to(left, now - last, interval, quantum) or 0
  local refused = left < 0 and wait > max_wait
  if (anew or not refused) and (commit or (commit == nil and record == 1)) then
    store(key, refused and tokens or left, last, not refused, state, before, interval, quantum, keep, low)
  end
  return struct.pack('<dd', left, now - last), refused
end

-- Reply   the number of tokens taken, as text
-- Cost    O(1)
function token_bucket.take_available(key, sent)
  local _, _, cost, interval, capacity, quantum, max_wait, clamp, keep, least, whole, low =
    struct.unpack('<dddddddddddd', sent)
  local state, tokens, last, before = refilled(key, 0, interval, capacity, quantum, max_wait, clamp, least, whole)
  local got = tokens > 0 and math.min(cost, tokens) or 0
  store(key, tokens - got, last, got > 0, state, before, interval, quantum, keep, low)
  return string.format('%.17g', got)
end

-- Reply   1; nil: not found
-- Cost    O(1)
function token_bucket.uncommit(key, sent)
  local _, _, cost, _, capacity = struct.unpack('<ddddd', sent)
  local state, tokens, last = stock(key)
  if not state then
    return false
  end
  save(key, packed(math.min(tokens + cost, capacity), last), state)
  return 1
end
