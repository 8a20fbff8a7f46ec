--[[ Lua patterns in Lua: find, match, gmatch and gsub as in section 5.4.1 of the Lua 5.1 manual.

The C library's matcher backtracks without running any VM instruction, so no hook can stop it: a pattern of thirty
characters could run for years. This matcher is written in Lua only, so the sandbox's time limit applies to it.

Arguments: string (the real library), table (the real library), unpack, floor, ceil, blame(message).
`blame` raises an error at the line of the script that called the library. Returns the four functions.

Subject and pattern positions count from 1. `match` returns the exclusive end of the match, or nil. As in C, a
pattern ends at its first NUL, and an error in a pattern is only raised when matching reaches it.
Cost: as in the manual's algorithm, exponential in the worst case; about 50 ns a step.
]]

local string, table, unpack, floor, ceil, blame = ...
local byte, sub, search, concat = string.byte, string.sub, string.find, table.concat
local error, tostring, tonumber, type, select = error, tostring, tonumber, type, select
local min, max = math.min, math.max

local OPEN, CLOSE, ESCAPE, DOT, SET, SET_END = 40, 41, 37, 46, 91, 93
local CARET, DOLLAR, STAR, PLUS, QUERY, DASH = 94, 36, 42, 43, 63, 45
local BALANCE, FRONTIER, ZERO, NINE = 98, 102, 48, 57
local UNFINISHED, POSITION = -1, -2
local MAX_CAPTURES = 32
local PLAIN_WORK = 65536 -- bytes that one call of the C search may compare

-- CLASS[letter][byte]: is the byte in the class %letter? ASCII, as in the C locale.
local CLASS = {}
do
  local function any(ranges)
    local set = {}
    for i = 0, 255 do
      set[i] = false
      for k = 1, #ranges, 2 do
        if ranges[k] <= i and i <= ranges[k + 1] then set[i] = true end
      end
    end
    return set
  end
  local classes = {
    a = any { 65, 90, 97, 122 },
    c = any { 0, 31, 127, 127 },
    d = any { 48, 57 },
    l = any { 97, 122 },
    p = any { 33, 47, 58, 64, 91, 96, 123, 126 },
    s = any { 9, 13, 32, 32 },
    u = any { 65, 90 },
    w = any { 48, 57, 65, 90, 97, 122 },
    x = any { 48, 57, 65, 70, 97, 102 },
    z = any { 0, 0 },
  }
  for letter, set in pairs(classes) do
    local others = {}
    for i = 0, 255 do others[i] = not set[i] end
    CLASS[byte(letter)], CLASS[byte(letter) - 32] = set, others
  end
end

-- The position after the item (character, class or set) that begins at p.
local function item_end(ms, p)
  local pat, plen = ms.pat, ms.plen
  local c = byte(pat, p)
  if c == ESCAPE then
    if p >= plen then blame("malformed pattern (ends with '%')") end
    return p + 2
  elseif c ~= SET then
    return p + 1
  end
  p = p + 1
  if byte(pat, p) == CARET then p = p + 1 end
  repeat
    if p > plen then blame("malformed pattern (missing ']')") end
    if byte(pat, p) == ESCAPE and p < plen then p = p + 1 end
    p = p + 1
  until byte(pat, p) == SET_END
  return p + 1
end

-- Is byte b in the set whose '[' is at p and whose ']' is at last?
local function in_set(pat, b, p, last)
  local wanted = true
  p = p + 1
  if byte(pat, p) == CARET then
    wanted = false
    p = p + 1
  end
  while p < last do
    local c, d = byte(pat, p, p + 1)
    if c == ESCAPE then
      local class = CLASS[d]
      if class then
        if class[b] then return wanted end
      elseif b == d then
        return wanted
      end
      p = p + 2
    elseif d == DASH and p + 2 < last then
      if c <= b and b <= byte(pat, p + 2) then return wanted end
      p = p + 3
    else
      if c == b then return wanted end
      p = p + 1
    end
  end
  return not wanted
end

-- Does the subject's byte at s match the item from p to after?
local function single(ms, s, p, after)
  if s > ms.slen then return false end
  local pat = ms.pat
  local c, b = byte(pat, p), byte(ms.src, s)
  if c == DOT then
    return true
  elseif c == ESCAPE then
    local d = byte(pat, p + 1)
    local class = CLASS[d]
    if class then return class[b] end
    return b == d
  elseif c == SET then
    return in_set(pat, b, p, after - 1)
  end
  return b == c
end

local function balance(ms, s, p)
  if p >= ms.plen then blame("unbalanced pattern") end
  local src = ms.src
  local opening, closing = byte(ms.pat, p, p + 1)
  if byte(src, s) ~= opening then return nil end
  local depth = 1
  for i = s + 1, ms.slen do
    local b = byte(src, i)
    if b == closing then
      depth = depth - 1
      if depth == 0 then return i + 1 end
    elseif b == opening then
      depth = depth + 1
    end
  end
  return nil
end

-- Does the set at p begin to hold at s? Returns the position after the set, or nil.
local function frontier(ms, s, p)
  local pat = ms.pat
  if byte(pat, p) ~= SET then blame("missing '[' after '%f' in pattern") end
  local after = item_end(ms, p)
  local before = s > 1 and byte(ms.src, s - 1) or 0
  local here = byte(ms.src, s) or 0
  if in_set(pat, before, p, after - 1) or not in_set(pat, here, p, after - 1) then return nil end
  return after
end

local function again(ms, s, digit)
  local i = digit - ZERO
  local length = i >= 1 and i <= ms.level and ms.lengths[i]
  if not length or length == UNFINISHED then blame("invalid capture index") end
  if length == POSITION or ms.slen - s + 1 < length then return nil end
  local from, src = ms.starts[i], ms.src
  if sub(src, from, from + length - 1) ~= sub(src, s, s + length - 1) then return nil end
  return s + length
end

local match

local function open_capture(ms, s, p, kind)
  local level = ms.level + 1
  if level > MAX_CAPTURES then blame("too many captures") end
  ms.starts[level], ms.lengths[level], ms.level = s, kind, level
  local e = match(ms, s, p)
  if not e then ms.level = ms.level - 1 end
  return e
end

local function close_capture(ms, s, p)
  local lengths, i = ms.lengths, ms.level
  while i > 0 and lengths[i] ~= UNFINISHED do i = i - 1 end
  if i == 0 then blame("invalid pattern capture") end
  lengths[i] = s - ms.starts[i]
  local e = match(ms, s, p)
  if not e then lengths[i] = UNFINISHED end
  return e
end

local function most(ms, s, p, after)
  local i = s
  while single(ms, i, p, after) do i = i + 1 end
  while i >= s do
    local e = match(ms, i, after + 1)
    if e then return e end
    i = i - 1
  end
  return nil
end

local function least(ms, s, p, after)
  while true do
    local e = match(ms, s, after + 1)
    if e then return e end
    if not single(ms, s, p, after) then return nil end
    s = s + 1
  end
end

function match(ms, s, p)
  local pat, plen = ms.pat, ms.plen
  while p <= plen do
    local c, d = byte(pat, p, p + 1)
    if p == plen then d = nil end
    if c == OPEN then
      if d == CLOSE then return open_capture(ms, s, p + 2, POSITION) end
      return open_capture(ms, s, p + 1, UNFINISHED)
    elseif c == CLOSE then
      return close_capture(ms, s, p + 1)
    elseif c == DOLLAR and not d then
      return s == ms.slen + 1 and s or nil
    elseif c == ESCAPE and d == BALANCE then
      s = balance(ms, s, p + 2)
      if not s then return nil end
      p = p + 4
    elseif c == ESCAPE and d == FRONTIER then
      p = frontier(ms, s, p + 2)
      if not p then return nil end
    elseif c == ESCAPE and d and d >= ZERO and d <= NINE then
      s = again(ms, s, d)
      if not s then return nil end
      p = p + 2
    else
      local after = item_end(ms, p)
      local how = after <= plen and byte(pat, after)
      if how == QUERY then
        if single(ms, s, p, after) then
          local e = match(ms, s + 1, after + 1)
          if e then return e end
        end
        p = after + 1
      elseif how == STAR then
        return most(ms, s, p, after)
      elseif how == PLUS then
        if not single(ms, s, p, after) then return nil end
        return most(ms, s + 1, p, after)
      elseif how == DASH then
        return least(ms, s, p, after)
      else
        if not single(ms, s, p, after) then return nil end
        s, p = s + 1, after
      end
    end
  end
  return s
end

-- The i-th capture of the match from s to e; without captures, the first one is the whole match.
local function capture(ms, i, s, e)
  if i > ms.level then
    if i ~= 1 then blame("invalid capture index") end
    return sub(ms.src, s, e - 1)
  end
  local from, length = ms.starts[i], ms.lengths[i]
  if length == UNFINISHED then blame("unfinished capture") end
  if length == POSITION then return from end
  return sub(ms.src, from, from + length - 1)
end

local function captures(ms, s, e)
  local level = ms.level
  if level <= 1 then return capture(ms, 1, s, e) end
  if level == 2 then return capture(ms, 1, s, e), capture(ms, 2, s, e) end
  local all = {}
  for i = 1, level do all[i] = capture(ms, i, s, e) end
  return unpack(all, 1, level)
end

local function begin(src, pat)
  local zero = search(pat, "\0", 1, true)
  return { src = src, slen = #src, pat = pat, plen = zero and zero - 1 or #pat, level = 0, starts = {}, lengths = {} }
end

local function bad(n, name, expected, value)
  local got = value == nil and "no value" or type(value)
  blame("bad argument #" .. n .. " to '" .. name .. "' (" .. expected .. " expected, got " .. got .. ")")
end

local function text(value, n, name)
  local kind = type(value)
  if kind == "string" then return value end
  if kind ~= "number" then bad(n, name, "string", value) end
  return tostring(value)
end

local function whole(value, n, name)
  local number = tonumber(value)
  if type(value) == "table" or not number then bad(n, name, "number", value) end
  if number ~= number then return 0 end
  return number >= 0 and floor(number) or ceil(number)
end

-- The start position of a search, from the library's third argument.
local function first(init, n, length, name)
  if init == nil then return 1 end
  init = whole(init, n, name)
  if init < 0 then init = length + init + 1 end
  return min(max(init, 1), length + 1)
end

-- The C search for plain text, in pieces that each do little work.
local function find_plain(src, want, init)
  local length, n = #src, #want
  if n == 0 then return init, init - 1 end
  if (length - init + 1) * n <= PLAIN_WORK then return search(src, want, init, true) end
  local stretch = max(1, floor(PLAIN_WORK / n))
  for from = init, length - n + 1, stretch do
    local a, b = search(sub(src, from, from + stretch + n - 2), want, 1, true)
    if a then return from + a - 1, from + b - 1 end
  end
  return nil
end

-- The first match of ms at or after s: its start and exclusive end.
local function seek(ms, s)
  local p = 1
  if byte(ms.pat, 1) == CARET and ms.plen > 0 then
    ms.level = 0
    return s, match(ms, s, 2)
  end
  for at = s, ms.slen + 1 do
    ms.level = 0
    local e = match(ms, at, p)
    if e then return at, e end
  end
  return nil
end

local function find(s, pattern, init, plain)
  s, pattern = text(s, 1, "find"), text(pattern, 2, "find")
  init = first(init, 3, #s, "find")
  local ms = begin(s, pattern)
  if plain or not search(sub(pattern, 1, ms.plen), "[%^%$%*%+%?%.%(%[%%%-]") then return find_plain(s, pattern, init) end
  local from, e = seek(ms, init)
  if not e then return nil end
  if ms.level == 0 then return from, e - 1 end
  return from, e - 1, captures(ms, from, e)
end

local function match_of(s, pattern, init)
  s, pattern = text(s, 1, "match"), text(pattern, 2, "match")
  local ms = begin(s, pattern)
  local from, e = seek(ms, first(init, 3, #s, "match"))
  if not e then return nil end
  return captures(ms, from, e)
end

local function gmatch(s, pattern)
  local ms = begin(text(s, 1, "gmatch"), text(pattern, 2, "gmatch"))
  local at = 1
  return function()
    while at <= ms.slen + 1 do
      ms.level = 0
      local from, e = at, match(ms, at, 1)
      at = from + 1
      if e then
        at = max(e, at)
        return captures(ms, from, e)
      end
    end
    return nil
  end
end

-- A replacement text with %0 to %9 filled in.
local function filled(ms, repl, s, e)
  if not search(repl, "%", 1, true) then return repl end
  local out, n, i = {}, 0, 1
  while i <= #repl do
    local mark = search(repl, "%", i, true)
    n = n + 1
    out[n] = sub(repl, i, (mark or 0) - 1)
    if not mark then break end
    local c = byte(repl, mark + 1)
    n = n + 1
    if not c then
      out[n] = "\0"
    elseif c == ZERO then
      out[n] = sub(ms.src, s, e - 1)
    elseif c > ZERO and c <= NINE then
      out[n] = capture(ms, c - ZERO, s, e)
    else
      out[n] = sub(repl, mark + 1, mark + 1)
    end
    i = mark + 2
  end
  return concat(out)
end

local function gsub(s, pattern, repl, ...)
  s, pattern = text(s, 1, "gsub"), text(pattern, 2, "gsub")
  local kind = type(repl)
  if kind == "number" then
    repl, kind = tostring(repl), "string"
  elseif kind ~= "string" and kind ~= "table" and kind ~= "function" then
    blame("bad argument #3 to 'gsub' (string/function/table expected)")
  end
  local length = #s
  local limit = ...
  limit = limit == nil and length + 1 or whole(limit, 4, "gsub")
  local ms = begin(s, pattern)
  local anchor = ms.plen > 0 and byte(pattern, 1) == CARET
  local start = anchor and 2 or 1
  local out, n, at, copied, count = {}, 0, 1, 1, 0
  while count < limit do
    ms.level = 0
    local e = match(ms, at, start)
    if e then
      count = count + 1
      local value
      if kind == "string" then
        value = filled(ms, repl, at, e)
      elseif kind == "table" then
        value = repl[capture(ms, 1, at, e)]
      else
        value = repl(captures(ms, at, e))
      end
      if not value then
        value = sub(s, at, e - 1)
      elseif type(value) ~= "string" and type(value) ~= "number" then
        blame("invalid replacement value (a " .. type(value) .. ")")
      end
      if copied < at then
        n = n + 1
        out[n] = sub(s, copied, at - 1)
      end
      n = n + 1
      out[n], copied = value, e
    end
    if e and e > at then
      at = e
    elseif at <= length then
      at = at + 1
    else
      break
    end
    if anchor then break end
  end
  if n == 0 then return s, count end
  out[n + 1] = sub(s, copied)
  return concat(out), count
end

return find, match_of, gmatch, gsub
