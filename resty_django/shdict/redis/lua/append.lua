-- Append an entry to a stream, without a change of an item.
-- KEYS    the stream, the stream
-- ARGV    entry: entry.lua
-- Cost    O(1)
redis.call('PERSIST', KEYS[1]) -- changes nothing, and may be done when memory is full; what follows it, too
append()
