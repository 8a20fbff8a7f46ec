-- algorithms/sliding_window.py on the server.
-- Config   limit, window (ms)
local sliding_window = {}

-- Returns the state, the start of the window, the numbers that passed in the previous window and in this one, its
-- elapsed ms, and the start in the state (-1: none).
local function windows_of(key, limit, window, cost)
  local elapsed = now % window
  local start = now - elapsed
  local state = load(key, 24, true)
  if not state then
    return nil, start, 0, 0, elapsed, -1
  end
  local stored, previous, current = struct.unpack('<i8i8i8', state)
  if stored == start then
    return state, start, previous, current, elapsed, stored
  elseif stored > now then
    return state, start, 0, math.min(previous + current, limit - cost), elapsed, stored
  elseif stored > start then
    return state, start, 0, previous + current, elapsed, stored
  elseif stored <= start - window then
    return state, start, stored == start - window and current or 0, 0, elapsed, stored
  end
  return state, start, previous + current, 0, elapsed, stored
end

-- `commit`: whether to record (nil: as in the arguments).
-- Reply   the numbers that passed in the previous window and in this one before this request, its elapsed ms, packed;
--         and whether it is refused
-- Cost    O(1)
function sliding_window.incoming(key, sent, commit)
  local _, record, cost, limit, window = struct.unpack('<ddddd', sent)
  local state, start, previous, current, elapsed, stored = windows_of(key, limit, window, cost)
  local refused = limit * window - (previous * (window - elapsed) + (current + cost) * window) < 0
  if not refused and (commit or (commit == nil and record == 1)) then
    local keep_ms = start ~= stored and 2 * window - elapsed + 1000 or nil
    save(key, struct.pack('<i8i8i8', start, previous, current + cost), state, keep_ms)
  end
  return struct.pack('<ddd', previous, current, elapsed), refused
end

-- Reply   the number left
-- Cost    O(1)
function sliding_window.uncommit(key, sent)
  local _, _, cost, limit, window = struct.unpack('<ddddd', sent)
  local state, start, previous, current, elapsed, stored = windows_of(key, limit, window, 0)
  current = math.max(current - cost, 0)
  if start == stored then
    save(key, struct.pack('<i8i8i8', start, previous, current), state)
  end
  return math.floor((limit * window - (previous * (window - elapsed) + current * window)) / window)
end
