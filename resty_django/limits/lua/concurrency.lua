-- algorithms/concurrency.py on the server.
-- Numbers  max, burst, delay (not used here), lease (ms; 0: none), and token (8 bytes; zeros: none)
local concurrency = {}

local HEAD, EACH, LEAST, AFTER, SPARE = 20, 16, 4, 60000, 60000
local SENT, NO_TOKEN = '<dddddddc8', string.rep('\0', 8)

local function ending(leases, at)
  return (struct.unpack('<i8', leases, at - 7))
end

-- Returns the state, the number in progress, the time until which it is kept, and the leases that have not ended.
local function slots(key)
  local state = load(key, HEAD)
  if not state then
    return nil, 0, -1, ''
  end
  local count, kept, held = struct.unpack('<i8i8i4', state)
  local at, last = HEAD, HEAD + held * EACH
  if last < HEAD or last > #state or (#state - HEAD) % (LEAST * EACH) ~= 0 then
    error('FOREIGN')
  end
  while at < last and ending(state, at + EACH) <= now do
    at, count = at + EACH, count - 1
  end
  return state, count, kept, string.sub(state, at + 1, last)
end

-- Adds leases; they stay in the order of their ends.
local function with(leases, token, over, times)
  local new, at = string.rep(struct.pack('<c8i8', token, over), times), #leases
  while at > 0 and ending(leases, at) > over do
    at = at - EACH
  end
  return string.sub(leases, 1, at) .. new .. string.sub(leases, at + 1)
end

-- Shortens leases so that none ends later than `over`.
local function shortened(leases, over)
  local at, late = #leases, {}
  while at > 0 and ending(leases, at) > over do
    late[#late + 1] = struct.pack('<c8i8', string.sub(leases, at - EACH + 1, at - EACH + 8), over)
    at = at - EACH
  end
  leases = string.sub(leases, 1, at)
  for i = #late, 1, -1 do
    leases = leases .. late[i]
  end
  return leases
end

-- Returns the leases without the token's, and the number of removed ones.
local function without(leases, token)
  local removed, at = 0, 1
  while at do
    at = string.find(leases, token, at, true)
    if at and (at - 1) % EACH == 0 then
      leases = string.sub(leases, 1, at - 1) .. string.sub(leases, at + EACH)
      removed = removed + 1
    elseif at then
      at = at + 1
    end
  end
  return leases, removed
end

-- Kept indefinitely if slots without a lease are, or may be, in use; `kept` is -1 if no state existed.
local function keep(key, state, lease, count, kept, leases)
  local used, room, life = #leases, state and #state - HEAD or 0, nil
  if lease == 0 or count * EACH ~= used then
    if kept ~= 0 then
      kept, life = 0, 0
    end
  else
    local least = (used > 0 and ending(leases, used) or now) + AFTER
    if kept < least or kept > least + lease + SPARE then
      kept = least + SPARE
      life = kept - now
    end
  end
  if used > room then
    room = math.max(room, LEAST * EACH)
    while used > room do
      room = room * 2
    end
  elseif 4 * used < room and room > LEAST * EACH then
    room = room / 2
  end
  save(key, struct.pack('<i8i8i4', count, kept, used / EACH) .. leases .. string.rep('\0', room - used), state, life)
end

-- `commit`: whether to record (nil: as in the arguments).
-- Reply   the number in progress with this request, packed; and whether it is refused
-- Cost    O(n) for n leases
function concurrency.incoming(key, sent, commit)
  local _, record, cost, max, burst, _, lease, token = struct.unpack(SENT, sent)
  local state, count, kept, leases = slots(key)
  if commit == nil then
    commit = record == 1
  end
  local late = commit and lease > 0 and leases ~= '' and ending(leases, #leases) > now + lease
  if late then
    leases = shortened(leases, now + lease)
  end
  local before = count
  count = count + cost
  local measured = struct.pack('<d', count)
  if count > max + burst then
    if late then
      keep(key, state, lease, before, kept, leases)
    end
    return measured, true
  elseif commit then
    if lease > 0 then
      leases = with(leases, token, now + lease, cost)
    end
    keep(key, state, lease, count, kept, leases)
  end
  return measured, false
end

local function less(key, sent, oldest)
  local _, _, cost, _, _, _, lease, token = struct.unpack(SENT, sent)
  local state, count, kept, leases = slots(key)
  if not state then
    return false
  elseif token ~= NO_TOKEN then
    leases, cost = without(leases, token)
  elseif oldest then
    leases = string.sub(leases, EACH * cost + 1)
  else
    leases = string.sub(leases, 1, math.max(#leases - EACH * cost, 0))
  end
  keep(key, state, lease, count - cost, kept, leases)
  return count - cost
end

-- Reply   the number in progress; nil: not found
-- Cost    O(n) for n leases
function concurrency.leaving(key, sent)
  return less(key, sent, true)
end

-- The same, but without a token the slot taken last is released.
function concurrency.uncommit(key, sent)
  return less(key, sent, false)
end

-- Reply   1: the lease was restarted; nil: it does not exist
-- Cost    O(n) for n leases
function concurrency.renew(key, sent)
  local _, _, _, _, _, _, lease, token = struct.unpack(SENT, sent)
  local state, count, kept, leases = slots(key)
  local rest, removed = without(leases, token)
  if removed == 0 then
    return false
  end
  keep(key, state, lease, count, kept, with(rest, token, now + lease, removed))
  return 1
end
