-- algorithms/leaky_bucket.py on the server.
-- Numbers  rate (units a second), burst (units), room, limit (both not used here), clamp (1 or 0), keep (s; 0: for ever)
local leaky_bucket = {}

local function bucket(key)
  local state = load(key, 16, true)
  if state then
    local excess, last = struct.unpack('<i8i8', state)
    return state, excess, last
  end
end

-- `commit`: whether to record (nil: as was sent).
-- Reply   the excess with this request, packed; and whether it is refused
-- Cost    O(1)
function leaky_bucket.incoming(key, sent, commit)
  local _, record, cost, rate, burst, _, _, clamp, keep = struct.unpack('<ddddddddd', sent)
  local state, stored, last = bucket(key)
  local excess, at = 0, now
  if state then
    local passed = now - last
    if passed < 0 then
      if clamp == 1 then
        passed, at = 0, last
      else
        passed = -passed
      end
    end
    excess = math.max(stored - rate * passed / 1000 + 1000 * cost, 0)
  end
  if excess > burst then
    return struct.pack('<d', excess), true
  elseif commit or (commit == nil and record == 1) then
    local life = keep * 1000
    if state and same_slot(at, last) then
      life = nil
    end
    save(key, struct.pack('<i8i8', math.floor(excess), at), state, life)
  end
  return struct.pack('<d', excess), false
end

-- Reply   1; nil: not found
-- Cost    O(1)
function leaky_bucket.uncommit(key, sent)
  local _, _, cost = struct.unpack('<ddd', sent)
  local state, excess, last = bucket(key)
  if not state then
    return false
  end
  save(key, struct.pack('<i8i8', math.max(excess - 1000 * cost, 0), last), state)
  return 1
end
