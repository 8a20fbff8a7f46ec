-- What commands share: the configuration, their arguments.

local max_payload, max_history, fixes, moment
local FIXED = 'keep-text cancel-unknown stats-expiry history-limit expired-keys pop-count recur-fraction spawn-jid'

-- The values of the options named, false where not set. A command that changes anything begins with it: from then on
-- `now` is the time that counts, and `moment` its whole seconds.
local function settings(...)
  local found = call('HMGET', prefix .. 'config', 'server-time', 'max-payload', 'max-job-history', 'fixes', ...)
  if found[1] and found[1] ~= '0' then
    local time = call('TIME')
    now = time[1] + time[2] / 1000000
  end
  moment = floor(now)
  max_payload, max_history, fixes = tonumber(found[2]) or 0, tonumber(found[3]) or 100, found[4] or FIXED
  return unpack(found, 5)
end

-- Whether a weakness of the original core is mended here.
local function fixed(name)
  return fixes == 'all' or find(' ' .. fixes .. ' ', ' ' .. name .. ' ', 1, true)
end

-- An argument as `kind` says, or an error that names the command and the argument. The kinds:
--   nothing  any text                    number  one that Redis takes
--   json     JSON, and not false, which cannot be told from nothing; no longer than max-payload
--   list     a JSON list of texts
local function need(title, name, given, kind)
  if not given then
    error(title .. '(): Arg "' .. name .. '" missing')
  elseif not kind then
    return given
  end
  local about = title .. '(): Arg "' .. name .. '" '
  if kind == 'number' then
    local value = tonumber(given)
    return value and value - value == 0 and value or error(about .. 'not a number: ' .. given)
  end
  local fine, value = pcall(cjson.decode, given)
  if not fine or value == false then
    error(about .. 'not JSON: ' .. given)
  elseif kind == 'list' then
    fine = type(value) == 'table' and (#value > 0 or next(value) == nil)
    for _, each in ipairs(fine and value or {}) do
      fine = fine and (type(each) == 'string' or type(each) == 'number')
    end
    return fine and value or error(about .. 'not a JSON list of texts: ' .. given)
  elseif max_payload > 0 and #given > max_payload then
    error(about .. 'longer than max-payload, ' .. max_payload .. ': ' .. #given)
  end
  return value
end
