-- algorithms/concurrency.py on the server.
-- Config   max, burst, unit (not used here), lease (ms; 0: none), and token (8 bytes; zeros: none)
local concurrency = {}

local HEAD_BYTES, KEEP_MS = 20, 60000
local LEASE_BYTES, MIN_LEASES_BYTES = 16, 4 * 16
local SENT, NO_TOKEN = '<dddddddc8', string.rep('\0', 8)

local function ending(leases, at)
  return (struct.unpack('<i8', leases, at - 7))
end

-- Returns the state, the number in progress, the time until which it is kept, and the leases that have not ended.
local function slots(key)
  local state = load(key, HEAD_BYTES)
  if not state then
    return nil, 0, -1, ''
  end
  local in_progress, keep_until, held = struct.unpack('<i8i8i4', state)
  local at, last = HEAD_BYTES, HEAD_BYTES + held * LEASE_BYTES
  if last < HEAD_BYTES or last > #state or (#state - HEAD_BYTES) % MIN_LEASES_BYTES ~= 0 then
    error('FOREIGN')
  end
  while at < last and ending(state, at + LEASE_BYTES) <= now do
    at, in_progress = at + LEASE_BYTES, in_progress - 1
  end
  return state, in_progress, keep_until, string.sub(state, at + 1, last)
end

-- Adds leases; they stay in the order of their ends.
local function with(leases, token, end_at, times)
  local new, at = string.rep(struct.pack('<c8i8', token, end_at), times), #leases
  while at > 0 and ending(leases, at) > end_at do
    at = at - LEASE_BYTES
  end
  return string.sub(leases, 1, at) .. new .. string.sub(leases, at + 1)
end

-- Shortens leases so that none ends later than `end_at`.
local function shortened(leases, end_at)
  local at, late = #leases, {}
  while at > 0 and ending(leases, at) > end_at do
    late[#late + 1] = struct.pack('<c8i8', string.sub(leases, at - LEASE_BYTES + 1, at - LEASE_BYTES + 8), end_at)
    at = at - LEASE_BYTES
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
    if at and (at - 1) % LEASE_BYTES == 0 then
      leases = string.sub(leases, 1, at - 1) .. string.sub(leases, at + LEASE_BYTES)
      removed = removed + 1
    elseif at then
      at = at + 1
    end
  end
  return leases, removed
end

-- Kept indefinitely if slots without a lease are, or may be, in use; `keep_until` is -1 if no state existed.
local function keep(key, state, lease, in_progress, keep_until, leases)
  local size, room, keep_ms = #leases, state and #state - HEAD_BYTES or 0, nil
  if lease == 0 or in_progress * LEASE_BYTES ~= size then
    if keep_until ~= 0 then
      keep_until, keep_ms = 0, 0
    end
  else
    local needed = (size > 0 and ending(leases, size) or now) + KEEP_MS
    if keep_until < needed or keep_until > needed + lease + KEEP_MS then
      keep_until = needed + KEEP_MS
      keep_ms = keep_until - now
    end
  end
  if size > room then
    room = math.max(room, MIN_LEASES_BYTES)
    while size > room do
      room = room * 2
    end
  elseif 4 * size < room and room > MIN_LEASES_BYTES then
    room = room / 2
  end
  local head = struct.pack('<i8i8i4', in_progress, keep_until, size / LEASE_BYTES)
  save(key, head .. leases .. string.rep('\0', room - size), state, keep_ms)
end

-- `commit`: whether to record (nil: as in the arguments).
-- Reply   the number in progress with this request, packed; and whether it is refused
-- Cost    O(n) for n leases
function concurrency.incoming(key, sent, commit)
  local _, record, cost, max, burst, _, lease, token = struct.unpack(SENT, sent)
  local state, in_progress, keep_until, leases = slots(key)
  if commit == nil then
    commit = record == 1
  end
  local late = commit and lease > 0 and leases ~= '' and ending(leases, #leases) > now + lease
  if late then
    leases = shortened(leases, now + lease)
  end
  local before = in_progress
  in_progress = in_progress + cost
  local measured = struct.pack('<d', in_progress)
  if in_progress > max + burst then
    if late then
      keep(key, state, lease, before, keep_until, leases)
    end
    return measured, true
  elseif commit then
    if lease > 0 then
      leases = with(leases, token, now + lease, cost)
    end
    keep(key, state, lease, in_progress, keep_until, leases)
  end
  return measured, false
end

local function less(key, sent, oldest)
  local _, _, cost, _, _, _, lease, token = struct.unpack(SENT, sent)
  local state, in_progress, keep_until, leases = slots(key)
  if not state then
    return false
  elseif token ~= NO_TOKEN then
    leases, cost = without(leases, token)
  elseif oldest then
    leases = string.sub(leases, LEASE_BYTES * cost + 1)
  else
    leases = string.sub(leases, 1, math.max(#leases - LEASE_BYTES * cost, 0))
  end
  keep(key, state, lease, in_progress - cost, keep_until, leases)
  return in_progress - cost
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
  local state, in_progress, keep_until, leases = slots(key)
  local rest, removed = without(leases, token)
  if removed == 0 then
    return false
  end
  keep(key, state, lease, in_progress, keep_until, with(rest, token, now + lease, removed))
  return 1
end
