-- algorithms/fixed_window.py on the server.
-- Config   limit, window (ms)
local fixed_window = {}

local function window_of(key)
  local state = load(key, 17, true)
  if state then
    local used, end_at = struct.unpack('<i8i8', state)
    if end_at > now then
      return state, used, end_at
    end
  end
end

-- `commit`: whether to record (nil: as in the arguments).
-- Reply   the number left with this request and ms until the window ends, packed; and whether it is refused
-- Cost    O(1)
function fixed_window.incoming(key, sent, commit)
  local _, record, cost, limit, window = struct.unpack('<ddddd', sent)
  if commit == nil then
    commit = record == 1
  end
  local state, used, end_at = window_of(key)
  local keep_ms
  if not state then
    used, end_at, keep_ms = 0, commit and now + window or now, window + 1000
  elseif end_at - now > window then
    used, end_at, keep_ms = math.min(used, limit - cost), now + window, window + 1000
  end
  used = used + cost
  if commit then
    save(key, struct.pack('<i8i8x', used, end_at), state, keep_ms)
  end
  return struct.pack('<dd', limit - used, end_at - now), used > limit
end

-- Reply   the number left; the limit if no window exists
-- Cost    O(1)
function fixed_window.uncommit(key, sent)
  local _, _, cost, limit = struct.unpack('<dddd', sent)
  local state, used, end_at = window_of(key)
  if not state then
    return limit
  end
  save(key, struct.pack('<i8i8x', used - cost, end_at), state)
  return limit - (used - cost)
end
