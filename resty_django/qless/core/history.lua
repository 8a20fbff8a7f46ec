-- The history of a job.

-- Append to the history: `at` in whole seconds, `what` and `extra` as JSON, `extra` without its braces. If the history
-- was empty although the job is not new (`fresh`), an old core may have kept it in the hash: that history then becomes
-- the beginning of the list, even if there is nothing to append.
local function append_history(jid, at, what, extra, fresh)
  local key = JOB .. jid .. '-history'
  local length = 1
  if at then
    length = call('RPUSH', key, '[' .. at .. ',' .. what .. (extra and ',{' .. extra .. '}]' or ']'))
  end
  if length == 1 and not fresh then
    local valid, stages = pcall(cjson.decode, call('HGET', JOB .. jid, 'history') or '')
    local entries = {}
    for _, stage in ipairs(valid and type(stages) == 'table' and stages or {}) do
      for n, step in ipairs({'put', 'popped', 'failed', 'done'}) do
        if tonumber(stage[step]) then
          local name = ({'q', 'worker'})[n]
          local details = name and stage[name] and ',{"' .. name .. '":' .. encode(stage[name]) .. '}]' or ']'
          entries[#entries + 1] = '[' .. floor(stage[step]) .. ',"' .. step .. '"' .. details
        end
      end
    end
    for n = #entries, 1, -1 do
      call('LPUSH', key, entries[n])
    end
    call('HDEL', JOB .. jid, 'history')
  end
  local limit = at and max_history or 0
  if length > limit and limit > 0 then
    if limit <= 2 and fixes == 'none' then
      limit = limit == 2 and length or 2
    end
    local first = call('LINDEX', key, 0)
    call('LTRIM', key, -limit, -1)
    call('LSET', key, 0, first)
  end
end
