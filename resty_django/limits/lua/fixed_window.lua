-- algorithms/fixed_window.py on the server.
-- Numbers  limit, window (ms)
local fixed_window = {}

local SPARE = 1000

local function window_of(key)
  local state = load(key, 17, true)
  if state then
    local used, over = struct.unpack('<i8i8', state)
    if over > now then
      return state, used, over
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
  local state, used, over = window_of(key)
  local life
  if not state then
    used, over, life = 0, commit and now + window or now, window + SPARE
  elseif over - now > window then
    used, over, life = math.min(used, limit - cost), now + window, window + SPARE
  end
  used = used + cost
  if commit then
    save(key, struct.pack('<i8i8x', used, over), state, life)
  end
  return struct.pack('<dd', limit - used, over - now), used > limit
end

-- Reply   the number left; the limit if no window exists
-- Cost    O(1)
function fixed_window.uncommit(key, sent)
  local _, _, cost, limit = struct.unpack('<dddd', sent)
  local state, used, over = window_of(key)
  if not state then
    return limit
  end
  save(key, struct.pack('<i8i8x', used - cost, over), state)
  return limit - (used - cost)
end
