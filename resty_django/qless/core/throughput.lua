-- The history of throughput: in one hash for each queue the jobs completed in each of the last 60 minutes, 48 hours and
-- 30 days, fields m<n>, h<n> and d<n> with the number n of the minute, hour or day since the epoch. A job is counted in
-- its minute alone. A minute that is too old is added to its hour, an hour that is too old to its day: so a
-- completion costs one HINCRBY, and the reader sums up.
local MINUTES, HOURS, DAYS = 60, 48, 30

local record_completion = command == 'complete' and function(queue)
  local key, minute = prefix .. 'h:' .. queue, floor(now / 60)
  if call('HINCRBY', key, 'm' .. minute, 1) > 1 then
    return
  end
  local hour, today = floor(now / 3600), floor(now / 86400)
  local fields = call('HGETALL', key)
  local sums, expired = {}, {}
  for _, step in ipairs({{'m', minute - MINUTES, 'h'}, {'h', hour - HOURS, 'd'}, {'d', today - DAYS}}) do
    local kind, oldest, above = unpack(step)
    for n = 1, #fields, 2 do
      local at = tonumber(string.match(fields[n], '^' .. kind .. '(-?%d+)$'))
      if at and at <= oldest then
        local target = above and above .. floor(at / (above == 'h' and 60 or 24))
        expired[#expired + 1] = fields[n]
        if target then
          sums[target] = (sums[target] or 0) + fields[n + 1]
        end
      end
    end
  end
  if expired[1] then
    call('HDEL', key, unpack(expired))
  end
  for field, sum in pairs(sums) do
    local at = tonumber(string.sub(field, 2))
    local kind = string.sub(field, 1, 1)
    if kind == 'h' and at <= hour - HOURS then
      field, kind, at = 'd' .. floor(at / 24), 'd', floor(at / 24)
    end
    if kind == 'h' or at > today - DAYS then
      call('HINCRBY', key, field, sum)
    end
  end
end
