-- Append an entry to a stream, without a change of an item.
-- KEYS    the stream, the stream
-- ARGV    entry: entry.lua
-- Cost    O(1)
append()
