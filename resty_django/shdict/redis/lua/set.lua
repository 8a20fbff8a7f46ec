-- Store a value.
-- KEYS    the item
-- ARGV    value, [life, stale ms, [flags]]
-- Cost    O(1); O(n) over a list of n items
save(unpack(ARGV))
