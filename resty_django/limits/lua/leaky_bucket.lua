-- algorithms/leaky_bucket.py on the server.
-- Config   rate (units a second), burst (units), whole_burst, limit (not used here), clamp (1 or 0),
--          keep (s; 0: indefinitely), keep_units
local leaky_bucket = {}

local function bucket(key)
  local state = load(key, 16, true)
  if state then
    local excess, last = struct.unpack('<i8i8', state)
    return state, excess, last
  end
end

-- Returns the excess including a request from before the last one, and the time to record for it.
local function set_back(stored, last, cost, rate, burst, clamp)
  local drained, capacity = rate * (last - now) / 1000, burst + 1000
  local excess, at = math.max(stored - drained + 1000 * cost, 0), now
  if clamp == 1 then
    excess, at = stored + 1000 * cost, drained > capacity and now or last
  end
  if excess <= burst then
    return excess, at
  end
  excess = stored + drained + 1000 * cost
  if excess - burst > math.max(capacity, 1000 * cost) then
    return burst, now
  end
  return excess, at
end

-- `commit`: whether to record (nil: as in the arguments).
-- Reply   the excess with this request, packed; and whether it is refused
-- Cost    O(1)
function leaky_bucket.incoming(key, sent, commit)
  local _, record, cost, rate, burst, whole_burst, _, clamp, keep, keep_units = struct.unpack('<dddddddddd', sent)
  local state, stored, last = bucket(key)
  local excess, at = 0, now
  if state then
    stored = math.min(stored, whole_burst)
    if now >= last then
      excess = math.max(stored - rate * (now - last) / 1000 + 1000 * cost, 0)
    else
      excess, at = set_back(stored, last, cost, rate, burst, clamp)
    end
  end
  if excess > burst then
    return struct.pack('<d', excess), true
  elseif commit or (commit == nil and record == 1) then
    local keep_ms = keep * 1000
    if state and same_slot(at, last) and excess + 1000 <= keep_units then
      keep_ms = nil
    end
    save(key, struct.pack('<i8i8', math.floor(excess), at), state, keep_ms)
  end
  return struct.pack('<d', excess), false
end

-- Reply   1; nil: not found
-- Cost    O(1)
function leaky_bucket.uncommit(key, sent)
  local _, _, cost, _, _, whole_burst = struct.unpack('<dddddd', sent)
  local state, excess, last = bucket(key)
  if not state then
    return false
  end
  save(key, struct.pack('<i8i8', math.max(math.min(excess, whole_burst) - 1000 * cost, 0), last), state)
  return 1
end
