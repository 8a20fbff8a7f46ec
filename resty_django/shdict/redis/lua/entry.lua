-- Comes after item.lua in scripts that change an item and append an entry to a stream (base.py, Entry).
-- KEYS    .., [the stream]: removed here
-- ARGV    .., [field, record, +entries to keep]: removed here
-- Cost    O(1)
local keep = string.match(ARGV[#ARGV] or '', '^%+(%d+)$')
local field, record, stream
if keep then
  stream, field, record = KEYS[#KEYS], ARGV[#ARGV - 2], ARGV[#ARGV - 1]
  KEYS[#KEYS] = nil
  for _ = 1, 3 do
    ARGV[#ARGV] = nil
  end
end

-- Call it after the first write, which fails if memory is full; after that, no write of a script fails for that.
local function append()
  if keep then
    redis.call('XADD', stream, 'MAXLEN', '~', keep, '*', field, record)
  end
end
