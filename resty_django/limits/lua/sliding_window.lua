-- algorithms/sliding_window.py on the server.
-- Numbers  limit, window (ms)
local sliding_window = {}

-- The state, the number of the window, what has passed in the one before and in it, ms of it that are over, and the
-- number in the state (-1: none).
local function windows_of(key, window)
  local number, over = math.floor(now / window), now % window
  local state = load(key, 24, true)
  if not state then
    return nil, number, 0, 0, over, -1
  end
  local stored, previous, current = struct.unpack('<i8i8i8', state)
  if stored == number then
    return state, number, previous, current, over, stored
  elseif stored > number then
    return state, stored, previous, current, 0, stored
  end
  return state, number, stored == number - 1 and current or 0, 0, over, stored
end

-- `commit`: whether to record (nil: as was sent).
-- Reply   passed in the window before, passed in this one without this request, ms of it that are over, packed; and
--         whether it is refused
-- Cost    O(1)
function sliding_window.incoming(key, sent, commit)
  local _, record, cost, limit, window = struct.unpack('<ddddd', sent)
  local state, number, previous, current, over, stored = windows_of(key, window)
  local refused = limit * window - (previous * (window - over) + (current + cost) * window) < 0
  if not refused and (commit or (commit == nil and record == 1)) then
    local life = number ~= stored and 2 * window - over or nil
    save(key, struct.pack('<i8i8i8', number, previous, current + cost), state, life)
  end
  return struct.pack('<ddd', previous, current, over), refused
end

-- Reply   the number left
-- Cost    O(1)
function sliding_window.uncommit(key, sent)
  local _, _, cost, limit, window = struct.unpack('<ddddd', sent)
  local state, number, previous, current, over, stored = windows_of(key, window)
  current = math.max(current - cost, 0)
  if number == stored then
    save(key, struct.pack('<i8i8i8', number, previous, current), state)
  end
  return math.floor((limit * window - (previous * (window - over) + current * window)) / window)
end
