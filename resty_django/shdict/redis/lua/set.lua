-- Store a value.
-- KEYS    the item, [the stream of the entry]
-- ARGV    value, [life, stale ms, [flags]], [entry: entry.lua]
-- Cost    O(1); O(n) over a list of n items
save(KEYS[1], unpack(ARGV))
append()
