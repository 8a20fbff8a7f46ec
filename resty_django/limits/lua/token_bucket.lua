-- algorithms/token_bucket.py on the server.
-- Numbers  interval (ms), capacity, quantum, max_wait (ms), clamp (1 or 0), keep (s; 0: for ever)
local token_bucket = {}

local function stock(key)
  local state = load(key, 18, true)
  if state then
    local tokens, last = struct.unpack('<i8i8', state)
    return state, tokens, last
  end
end

-- The state, tokens and last tick after the refill, and the last tick before it.
local function refilled(key, interval, capacity, quantum, clamp)
  local state, tokens, last = stock(key)
  if not state then
    return nil, capacity, now, now
  end
  local ticks, before = math.floor((now - last) / interval), last
  if clamp ~= 1 or ticks > 0 then
    last = last + ticks * interval
    if tokens < capacity then
      tokens = math.min(tokens + ticks * quantum, capacity)
    end
  end
  return state, tokens, last, before
end

local LONGEST = 1e12

local function store(key, tokens, last, state, before, interval, quantum, keep)
  local life
  if tokens < 0 and keep > 0 then
    life = math.min(keep * 1000 + math.ceil(-tokens / quantum) * interval, LONGEST)
  elseif not state or not same_slot(now, before) then
    life = keep * 1000
  end
  save(key, struct.pack('<i8i8xx', trunc(tokens), trunc(last)), state, life)
end

-- `commit`: whether to record (nil: as was sent).
-- Reply   tokens left with this request and ms since the last tick, packed; and whether it is refused
-- Cost    O(1)
function token_bucket.incoming(key, sent, commit)
  local _, record, cost, interval, capacity, quantum, max_wait, clamp, keep = struct.unpack('<ddddddddd', sent)
  local state, tokens, last, before = refilled(key, interval, capacity, quantum, clamp)
  local left = tokens - cost
  local wait = left < 0 and math.floor((-left + quantum - 1) / quantum) * interval - (now - last) or 0
  local refused = left < 0 and wait > max_wait
  if commit or (commit == nil and record == 1) then
    store(key, refused and tokens or left, last, state, before, interval, quantum, keep)
  end
  return struct.pack('<dd', left, now - last), refused
end

-- Reply   how many were taken, as text
-- Cost    O(1)
function token_bucket.take_available(key, sent)
  local _, _, cost, interval, capacity, quantum, _, clamp, keep = struct.unpack('<ddddddddd', sent)
  local state, tokens, last, before = refilled(key, interval, capacity, quantum, clamp)
  local got = tokens > 0 and math.min(cost, tokens) or 0
  store(key, tokens - got, last, state, before, interval, quantum, keep)
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
  save(key, struct.pack('<i8i8xx', trunc(math.min(tokens + cost, capacity)), last), state)
  return 1
end
