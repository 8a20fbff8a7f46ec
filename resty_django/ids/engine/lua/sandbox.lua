--[[ The sandbox in which a rule's script runs. Requires PUC Lua 5.1, for its count hook.

Arguments:
  take       Python callable: returns the next number, or nil if there is none (it stores the reason)
  patterns   text of patterns.lua
  seconds    CPU time limit of one call into the script
  ticks      maximum count of hook calls during one call (the hook runs every STEP instructions)
  kilobytes  memory limit of the script, in addition to the sandbox itself
  seed       whole number, the seed of math.random
  too_long, too_big   texts of the two errors that a script cannot catch

Returns these functions, to be called from one thread at a time:
  compile(source)              bytecode for inspection, or false and the error
  start()                      runs the chunk
  bound(name)                  true and the number that the script's function `name` returns
  has(name)                    whether the script has a function `name`
  run(year, month, day, hour, minute, second, salt)   the ID as text
start, bound and run return false and a message if the script fails. They may raise too_long, too_big or "not
enough memory" if a limit is exceeded outside the script's own code; the sandbox must then be discarded.

Restrictions of a script:
- It has a separate environment table. The real globals cannot be reached from it, and no function in it loads code,
  accesses environments or exposes Python objects (the upvalues that contain them cannot be read without `debug`).
- A hook counts instructions and checks the clock, and every C function that could run long between two
  instructions is replaced: patterns, plain search, string.rep, table.insert/remove/foreachi, table.sort's comparator.
  Functions that reveal addresses (tostring), crash on extreme numbers (unpack) or share state (math.random) are
  replaced, too.
- The allocator enforces the memory limit. Big strings make single instructions slow (comparing two strings of half a
  megabyte takes 3 ms), so the hook checks the clock on each call once the script uses more than a little memory.
- pcall and xpcall raise the two limit errors again. xpcall's handler runs after unwinding, because an error raised by
  a hook would run it with hooks off.
]]

local take, patterns, seconds, max_ticks, kilobytes, seed, too_long, too_big = ...

local STEP = 10 -- instructions between two calls of the hook
local LOOK = 25 -- calls of the hook between two clock checks, while little memory is in use
local ROOMY = 64 -- kilobytes of garbage before a collection
local EXACT = 9007199254740992 -- 2^53
local INT = 2147483647
local LONGEST = 1020 -- bytes of an ID of 255 characters

local string, table, math, debug = string, table, math, debug
local error, pcall, type, tostring, tonumber, select = error, pcall, type, tostring, tonumber, select
local rawget, rawset, rawequal, setmetatable, getmetatable = rawget, rawset, rawequal, setmetatable, getmetatable
local loadstring, setfenv, next, unpack, collect, clock = loadstring, setfenv, next, unpack, collectgarbage, os.clock
local floor, ceil, huge = math.floor, math.ceil, math.huge
local format, sub, rep, byte = string.format, string.sub, string.rep, string.byte
local concat, sort, getinfo, sethook, dump = table.concat, table.sort, debug.getinfo, debug.sethook, string.dump
local NO_MEMORY = "not enough memory"

-- Bounds ------------------------------------------------------------------------------------------------------

local inside, dead, deadline = false, nil, nil
local ticks, look_at, crowded = 0, 0, huge

local function stop(reason)
  dead = reason
  error(reason, 0)
end

local function tick()
  if not inside then return end
  if dead then error(dead, 0) end
  ticks = ticks + 1
  if ticks < look_at and collect("count") < crowded then return end
  look_at = ticks + LOOK
  local now = clock()
  if not deadline then
    deadline = now + seconds
  elseif now > deadline or ticks > max_ticks then
    stop(too_long)
  end
end

-- After a protected call: raises limit errors again and returns everything else to the script.
local function passed(ok, ...)
  if not ok then
    if dead then error(dead, 0) end
    if (...) == NO_MEMORY then stop(too_big) end
  end
  return ok, ...
end

local function described(value)
  if type(value) == "string" then return sub(value, 1, 500) end
  if type(value) == "number" then return tostring(value) end
  return "the script raised a " .. type(value) .. " as its error"
end

-- Calls the script's function f under the limits: returns true and its first result, or false and the error.
local function settled(ok, value)
  inside = false
  if dead then return false, dead end
  if ok then return true, value end
  if value == NO_MEMORY then return false, too_big end
  return false, described(value)
end

local function guarded(f, ...)
  ticks, look_at, deadline, dead = 0, LOOK, nil, nil
  inside = true
  return settled(pcall(f, ...))
end

-- Raises an error at the innermost line outside the sandbox's own chunks.
local function blame(message)
  local level, own = 2, getinfo(1, "S").source
  while true do
    local info = getinfo(level, "S")
    if not info then return error(message, 0) end
    if info.source ~= own and info.source ~= "=patterns" then return error(message, level) end
    level = level + 1
  end
end

-- The script's environment ------------------------------------------------------------------------------------

local function copy(from, names)
  local to = {}
  for name in names:gmatch("%S+") do to[name] = from[name] end
  return to
end

local env = copy(_G, "_VERSION assert error getmetatable ipairs next pairs rawequal rawget rawset select setmetatable "
  .. "tonumber type")
env._G = env

local function check_table(t, name)
  if type(t) ~= "table" then blame("bad argument #1 to '" .. name .. "' (table expected, got " .. type(t) .. ")") end
end

local function check_function(f, name)
  if type(f) ~= "function" then
    blame("bad argument #2 to '" .. name .. "' (function expected, got " .. type(f) .. ")")
  end
end

local function check_position(n, name)
  local position = tonumber(n)
  if not position then blame("bad argument #2 to '" .. name .. "' (number expected, got " .. type(n) .. ")") end
  return position >= 0 and floor(position) or ceil(position)
end

function env.print() end

-- The C library's unpack does not check for int overflow.
function env.unpack(t, i, j)
  check_table(t, "unpack")
  i = i == nil and 1 or check_position(i, "unpack")
  j = j == nil and #t or check_position(j, "unpack")
  if not (i <= j) then return end
  if j - i >= 7500 or i < -INT or j > INT then blame("too many results to unpack") end
  return unpack(t, i, j)
end

function env.pcall(...) return passed(pcall(...)) end

local function handled(handler, ok, ...)
  if ok then return true, ... end
  local _, value = passed(pcall(handler, ...))
  return false, value
end

function env.xpcall(f, handler) return handled(handler, passed(pcall(f))) end

function env.tostring(...)
  if select("#", ...) == 0 then blame("bad argument #1 to 'tostring' (value expected)") end
  local value = ...
  local kind = type(value)
  if kind ~= "table" and kind ~= "function" then return tostring(value) end
  local meta = kind == "table" and debug.getmetatable(value)
  if meta and rawget(meta, "__tostring") then return tostring(value) end
  return kind -- the standard text contains a memory address
end

env.string = copy(string, "byte char format len lower reverse sub upper")
env.string.find, env.string.match, env.string.gmatch, env.string.gsub =
  loadstring(patterns, "=patterns")(string, table, unpack, floor, ceil, blame)
env.string.gfind = env.string.gmatch

function env.string.rep(s, n)
  if type(s) == "number" then s = tostring(s) end
  if type(s) ~= "string" then blame("bad argument #1 to 'rep' (string expected, got " .. type(s) .. ")") end
  local times = tonumber(n)
  if not times then blame("bad argument #2 to 'rep' (number expected, got " .. type(n) .. ")") end
  if not (times >= 1) or s == "" then return "" end
  if #s * times > kilobytes * 1024 then stop(too_big) end
  return rep(s, times)
end

local strings = getmetatable("")
strings.__index, strings.__metatable = env.string, false

env.table = copy(table, "concat getn maxn setn")

function env.table.insert(t, ...)
  check_table(t, "insert")
  local given, last = select("#", ...), #t + 1
  local position, value = ...
  if given == 1 then
    rawset(t, last, position)
    return
  elseif given ~= 2 then
    blame("wrong number of arguments to 'insert'")
  end
  position = check_position(position, "insert")
  if position > last then last = position end
  for i = last, position + 1, -1 do rawset(t, i, rawget(t, i - 1)) end
  rawset(t, position, value)
end

function env.table.remove(t, n)
  check_table(t, "remove")
  local last = #t
  local position = n == nil and last or check_position(n, "remove")
  if position < 1 or position > last then return end
  local value = rawget(t, position)
  for i = position, last - 1 do rawset(t, i, rawget(t, i + 1)) end
  rawset(t, last, nil)
  return value
end

function env.table.sort(t, before)
  check_table(t, "sort")
  if #t > INT / 4 then blame("table too long to sort") end
  if before == nil then
    sort(t, function(a, b) return a < b end)
  else
    check_function(before, "sort")
    sort(t, function(a, b) return (before(a, b)) end)
  end
end

function env.table.foreach(t, f)
  check_table(t, "foreach")
  check_function(f, "foreach")
  for key, value in next, t do
    local result = f(key, value)
    if result ~= nil then return result end
  end
end

function env.table.foreachi(t, f)
  check_table(t, "foreachi")
  check_function(f, "foreachi")
  for i = 1, #t do
    local result = f(i, rawget(t, i))
    if result ~= nil then return result end
  end
end

env.math = {}
for name, value in next, math do env.math[name] = value end

-- L'Ecuyer's combined generator: the state of the C library's generator is shared by the whole process.
local first, second, random

function env.math.randomseed(n)
  local number = tonumber(n)
  if not number then blame("bad argument #1 to 'randomseed' (number expected, got " .. type(n) .. ")") end
  if number ~= number or number == huge or number == -huge then number = 0 end
  number = floor(number)
  first, second = number % 2147483562 + 1, floor(number / 65536) % 2147483398 + 1
  for _ = 1, 4 do random() end
end

function random(...)
  first, second = first * 40014 % 2147483563, second * 40692 % 2147483399
  local fraction = ((first - second) % 2147483562) / 2147483562
  local given, low, high = select("#", ...), ...
  if given == 0 then return fraction end
  if given == 1 then low, high = 1, low end
  if given > 2 then blame("wrong number of arguments") end
  low, high = tonumber(low), tonumber(high)
  if not low or not high then blame("bad argument to 'random' (number expected)") end
  if not (low <= high) then blame("bad argument #" .. given .. " to 'random' (interval is empty)") end
  return floor(fraction * (high - low + 1)) + low
end
env.math.random = random
env.math.randomseed(seed)

-- The call ----------------------------------------------------------------------------------------------------

local year, month, day, hour, minute, now_second
local current -- the counter of the running create_id

local now_meta = {
  __metatable = false,
  __index = {
    year = function() return year end,
    month = function() return month end,
    day = function() return day end,
    hour = function() return hour end,
    minute = function() return minute end,
    second = function() return now_second end,
  },
}

local counter_meta = {
  __metatable = false,
  __index = {
    generate_counter = function(counter)
      if not current or not rawequal(counter, current) then
        blame("generate_counter() belongs to the counter that the running create_id was given")
      end
      local left = deadline and deadline - clock()
      local number = take()
      if left then deadline = clock() + left end
      if not number then blame("the counter has no number") end
      return number
    end,
  },
}

local chunk
local collect_at

local function compile(source)
  local problem
  if byte(source, 1) == 27 then return false, "a compiled script is not accepted" end
  chunk, problem = loadstring(source, "=script")
  if not chunk then return false, problem end
  setfenv(chunk, env)
  return dump(chunk)
end

-- Collects garbage if much has accumulated; returns too_big if the script exceeds its memory limit.
local function tidy()
  if collect("count") < collect_at then return nil end
  collect("collect")
  local held = collect("count")
  collect_at = held + ROOMY
  if held > crowded - 2 * ROOMY + kilobytes then return too_big end
  return nil
end

local function kept(ok, value)
  local problem = tidy()
  if problem then return false, problem end
  return ok, value
end

local function start() return kept(guarded(chunk)) end

local function bound(name)
  local f = rawget(env, name)
  if type(f) ~= "function" then return false, "the function " .. name .. "() is missing" end
  local ok, value = kept(guarded(f))
  if ok and type(value) ~= "number" then
    return false, name .. "() returned a " .. type(value) .. " where a number is needed"
  end
  return ok, value
end

local function has(name) return type(rawget(env, name)) == "function" end

-- A number as text: like tostring, but whole numbers with all their digits.
local function written(number)
  if number ~= number or number == huge or number == -huge then return false, "create_id returned no real number" end
  if number ~= floor(number) then return tostring(number) end
  if number >= EXACT or number <= -EXACT then
    return false, "create_id returned a number too big to be exact; return text made by string.format"
  end
  return format("%.0f", number)
end

local function run(...)
  local create, salt = rawget(env, "create_id"), nil
  if type(create) ~= "function" then return false, "the function create_id() is missing" end
  year, month, day, hour, minute, now_second, salt = ...
  current = setmetatable({}, counter_meta)
  local ok, value = guarded(create, current, setmetatable({}, now_meta), salt)
  current = nil
  if collect("count") >= collect_at then ok, value = kept(ok, value) end
  if not ok then return false, value end
  local kind = type(value)
  if kind == "number" then return written(value) end
  if kind ~= "string" then return false, "create_id returned " .. (value == nil and "nil" or "a " .. kind) end
  if value == "" then return false, "create_id returned an empty text" end
  if #value > LONGEST then return false, "create_id returned a text of more than 255 characters" end
  return value
end

-- The script cannot reach anything above; the real globals are emptied as an additional protection.
local emptied = { "python", "debug", "io", "os", "package", "coroutine", "load", "loadfile", "dofile", "require", "module" }
for _, name in next, emptied do
  package.loaded[name] = nil
end
for _, name in next, emptied do
  _G[name] = nil
end

collect("setpause", 120)
collect("setstepmul", 400)
collect("collect")
crowded = collect("count") + 2 * ROOMY
collect_at = collect("count") + ROOMY
sethook(tick, "", STEP)

return compile, start, bound, has, run
