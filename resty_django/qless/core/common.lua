-- Helpers for all commands: configuration and arguments.

-- `fixes`, the profile of fixes for flaws of qless-core: `none`; `shared`, the default, those on which no client of
-- qless can depend; or `all`. Any other value, which only another core can store, counts as `shared`.
local max_payload, max_history, fixes, moment, max_index, index_classes

-- Return the values of the named options, false for those not set. Commands that change data call this first: it sets
-- `now` to the effective time and `moment` to its whole seconds.
local function settings(...)
  local values = call('HMGET', prefix .. 'config', 'server-time', 'max-payload', 'max-job-history', 'fixes',
    'max-index', 'index-classes', ...)
  if values[1] and values[1] ~= '0' then
    local time = call('TIME')
    now = time[1] + time[2] / 1000000
  end
  moment = floor(now)
  max_payload, max_history, fixes = tonumber(values[2]) or 0, tonumber(values[3]) or 100, values[4]
  max_index, index_classes = tonumber(values[5]) or 2000000, values[6] or ''
  return unpack(values, 7)
end

-- Return an argument of the given kind, or raise an error that names the command and the argument. Kinds:
--   nil      any string                  number  a number that Redis accepts
--   json     JSON other than false, which looks like a missing value; no longer than max-payload
--   value    any JSON whose numbers are finite; no longer than max-payload
--   list     a JSON list of strings
local function need(title, name, argument, kind)
  if not argument then
    error(title .. '(): Arg "' .. name .. '" missing')
  elseif not kind then
    return argument
  end
  local subject = title .. '(): Arg "' .. name .. '" '
  if kind == 'number' then
    local value = tonumber(argument)
    return value and value - value == 0 and value or error(subject .. 'not a number: ' .. argument)
  end
  local valid, value = pcall(cjson.decode, argument)
  if not valid or value == false and kind ~= 'value' then
    error(subject .. 'not JSON: ' .. argument)
  elseif kind == 'value' and type(value) == 'number' and value - value ~= 0 then
    error(subject .. 'not JSON, which has neither NaN nor infinity: ' .. argument)
  elseif kind == 'list' then
    valid = type(value) == 'table' and (#value > 0 or next(value) == nil)
    for _, element in ipairs(valid and value or {}) do
      valid = valid and (type(element) == 'string' or type(element) == 'number')
    end
    return valid and value or error(subject .. 'not a JSON list of texts: ' .. argument)
  elseif max_payload > 0 and #argument > max_payload then
    error(subject .. 'longer than max-payload, ' .. max_payload .. ': ' .. #argument)
  end
  return value
end

-- Return whether the index contains jobs of a class: those that have failed, and all jobs of the classes in the option
-- `index-classes`, which separates them by commas or blanks; `*` stands for all classes.
local function is_indexed(class, failed)
  if failed or index_classes == '' then
    return failed
  end
  local names = ',' .. string.gsub(index_classes, '%s+', ',') .. ','
  return find(names, ',*,', 1, true) or find(names, ',' .. tostring(class) .. ',', 1, true)
end

-- Note that a job is to be indexed, see index.lua. The list is bounded; a pass over all jobs finds those that it omits.
local MAX_UNINDEXED = 100000
local function note_job(jid)
  if max_index > 0 and call('RPUSH', prefix .. 'unindexed', jid) > MAX_UNINDEXED then
    call('LPOP', prefix .. 'unindexed')
  end
end

-- Note a job whose tags, or whose data if they are given, change now, if the index contains it.
local function note_change(jid, data)
  if (not data or index_classes ~= '' and call('HGET', JOB .. jid, 'data') ~= data)
    and call('EXISTS', prefix .. 'i:' .. jid) == 1 then
    note_job(jid)
  end
end
