-- algorithms/fixed_window.py on the server.
-- Numbers  limit, window (ms)
local fixed_window = {}

local function window_of(key)
  local state = load(key, 17, true)
  if state then
    local left, over = struct.unpack('<i8i8', state)
    if over > now then
      return state, left, over
    end
  end
end

-- `commit`: whether to record (nil: as was sent).
-- Reply   the number left with this request and ms until the window ends, packed; and whether it is refused
-- Cost    O(1)
function fixed_window.incoming(key, sent, commit)
  local _, record, cost, limit, window = struct.unpack('<ddddd', sent)
  if commit == nil then
    commit = record == 1
  end
  local state, left, over = window_of(key)
  if not state then
    left, over = limit, commit and now + window or now
  end
  left = left - cost
  if commit then
    save(key, struct.pack('<i8i8x', left, over), state, not state and window or nil)
  end
  return struct.pack('<dd', left, over - now), left < 0
end

-- Reply   the number left; the limit where there is no window
-- Cost    O(1)
function fixed_window.uncommit(key, sent)
  local _, _, cost, limit = struct.unpack('<dddd', sent)
  local state, left, over = window_of(key)
  if not state then
    return limit
  end
  save(key, struct.pack('<i8i8x', left + cost, over), state)
  return left + cost
end
