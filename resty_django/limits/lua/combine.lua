-- Several limits in one atomic step: the two-phase protocol (algorithms/protocol.py).
-- KEYS    one for each limit
-- ARGV    for each limit: algorithm, arguments
-- Reply   number of the limit that refused (0: none), then for each limit the packed result of its last call, or '' if
--         that call neither recorded nor refused the request
-- Cost    O(n) for n limits and the cost of each, twice
local algorithms = {
  leaky_bucket = leaky_bucket,
  fixed_window = fixed_window,
  sliding_window = sliding_window,
  concurrency = concurrency,
  token_bucket = token_bucket,
}
local count, reply = #KEYS, { 0 }
for i = 1, count do
  reply[i + 1] = ''
end

-- Returns whether limit i refuses.
local function ask(i, commit)
  local measured, refused = algorithms[ARGV[2 * i - 1]].incoming(KEYS[i], ARGV[2 * i], commit)
  if refused then
    reply[1] = i
  end
  if refused or commit then
    reply[i + 1] = measured
  end
  return refused
end

local function take_back(i)
  algorithms[ARGV[2 * i - 1]].uncommit(KEYS[i], ARGV[2 * i])
end

for i = 1, count do
  if ask(i, i == count) then
    return reply
  end
end
for i = 1, count - 1 do
  if ask(i, true) then
    for j = 1, i - 1 do
      take_back(j)
    end
    take_back(count)
    return reply
  end
end
return reply
