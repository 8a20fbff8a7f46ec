-- Throughput history: one hash per queue with the number of jobs completed in each of the last 60 minutes, 48 hours and
-- 30 days, in the fields m<n>, h<n> and d<n>, where n numbers the minutes, hours or days since the epoch. A job is
-- counted only in its minute. Old minutes are added to their hour, and old hours to their day. So a completion costs
-- one HINCRBY, and readers sum up.
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
