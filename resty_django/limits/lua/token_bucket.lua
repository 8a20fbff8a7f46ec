-- algorithms/token_bucket.py on the server.
-- Config   interval (ms), capacity, quantum, max_wait (ms), clamp (1 or 0), keep (s; 0: indefinitely),
--          min_tokens, fill_time (ms), keep_tokens
local token_bucket = {}

local PARTS_PER_MS = 4096

local function bucket(key)
  local state = load(key, 18, true)
  if state then
    local tokens, last, parts = struct.unpack('<i8i8I2', state)
    return state, tokens, last + parts / PARTS_PER_MS
  end
end

local function packed(tokens, last)
  local milliseconds = math.floor(last)
  return struct.pack('<i8i8I2', trunc(tokens), milliseconds, math.floor((last - milliseconds) * PARTS_PER_MS))
end

-- Returns the ms until all owed tokens are refilled.
local function wait_for(after, since_tick, interval, quantum)
  return math.floor((-after + quantum - 1) / quantum) * interval - since_tick
end

-- Returns tokens and last tick for a request before the last tick, and whether ticks restart.
local function set_back(tokens, last, cost, interval, capacity, quantum, max_wait, clamp, fill_time)
  if last - now <= fill_time then
    local ticks = clamp == 1 and 0 or math.floor((now - last) / interval)
    local before, at = tokens < capacity and tokens + ticks * quantum or tokens, last + ticks * interval
    if before >= cost or wait_for(before - cost, now - at, interval, quantum) <= max_wait + fill_time then
      return before, at, false
    end
  end
  if tokens < cost and wait_for(tokens - cost, 0, interval, quantum) > max_wait then
    tokens = math.min(cost - math.floor(max_wait / interval) * quantum, capacity)
  end
  return tokens, now, true
end

-- Returns the state, tokens and last tick after the refill for a request of that cost, the last tick before it, and
-- whether to store this even if the request is refused.
local function refilled(key, cost, interval, capacity, quantum, max_wait, clamp, min_tokens, fill_time)
  local state, tokens, last = bucket(key)
  if not state then
    return nil, capacity, now, now, true
  end
  local before, store_refill = last, true
  tokens = math.max(math.min(tokens, capacity), min_tokens)
  if now >= last then
    local ticks = math.floor((now - last) / interval)
    last = last + ticks * interval
    if tokens < capacity then
      tokens = math.min(tokens + ticks * quantum, capacity)
    end
  else
    tokens, last, store_refill = set_back(tokens, last, cost, interval, capacity, quantum, max_wait, clamp, fill_time)
  end
  return state, tokens, last, before, store_refill
end

local MAX_KEEP_MS = 1e12

-- `taken`: whether tokens were taken.
local function store(key, tokens, last, taken, state, before, interval, quantum, keep, keep_tokens)
  local keep_ms
  if tokens < 0 and keep > 0 then
    keep_ms = math.min(keep * 1000 + math.ceil(-tokens / quantum) * interval, MAX_KEEP_MS)
  elseif not state or not same_slot(now, before) or (taken and tokens < keep_tokens) then
    keep_ms = keep * 1000
  end
  save(key, packed(tokens, last), state, keep_ms)
end

-- `commit`: whether to record (nil: as in the arguments).
-- Reply   tokens left with this request and ms since the last tick, packed; and whether it is refused
-- Cost    O(1)
function token_bucket.incoming(key, sent, commit)
  local _, record, cost, interval, capacity, quantum, max_wait, clamp, keep, min_tokens, fill_time, keep_tokens =
    struct.unpack('<dddddddddddd', sent)
  local state, tokens, last, before, store_refill =
    refilled(key, cost, interval, capacity, quantum, max_wait, clamp, min_tokens, fill_time)
  local after = tokens - cost
  local wait = after < 0 and wait_for(after, now - last, interval, quantum) or 0
  local refused = after < 0 and wait > max_wait
  if (store_refill or not refused) and (commit or (commit == nil and record == 1)) then
    store(key, refused and tokens or after, last, not refused, state, before, interval, quantum, keep, keep_tokens)
  end
  return struct.pack('<dd', after, now - last), refused
end

-- Reply   the number of tokens taken, as text
-- Cost    O(1)
function token_bucket.take_available(key, sent)
  local _, _, cost, interval, capacity, quantum, max_wait, clamp, keep, min_tokens, fill_time, keep_tokens =
    struct.unpack('<dddddddddddd', sent)
  local state, tokens, last, before =
    refilled(key, 0, interval, capacity, quantum, max_wait, clamp, min_tokens, fill_time)
  local got = tokens > 0 and math.min(cost, tokens) or 0
  store(key, tokens - got, last, got > 0, state, before, interval, quantum, keep, keep_tokens)
  return string.format('%.17g', got)
end

-- Reply   1; nil: not found
-- Cost    O(1)
function token_bucket.uncommit(key, sent)
  local _, _, cost, _, capacity = struct.unpack('<ddddd', sent)
  local state, tokens, last = bucket(key)
  if not state then
    return false
  end
  save(key, packed(math.min(tokens + cost, capacity), last), state)
  return 1
end
