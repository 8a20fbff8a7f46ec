local prefix = 'ql:'
-- The core: the only script that changes job data, for clients in any language.
--
--   EVALSHA <sha1> 0 <command> <now> [argument ...]
--
-- All keys begin with `prefix`. If it contains a hash tag, such as {jobs}ql:, the prefix may be passed as the only key,
-- so that a cluster client finds the node.
--
-- Creating its functions costs a call more than most commands do. So files with frequent commands come first: a call
-- creates the functions of the files up to its command's file, and few that it does not need.
local call, find, format, floor, encode = redis.call, string.find, string.format, math.floor, cjson.encode
local command, now = ARGV[1], tonumber(ARGV[2])
local COMMANDS = [[ put put.many requeue pop peek take complete complete.many fail retry heartbeat timeout progress
cancel expire oldest priority depends log get multiget jobs search result track tag failed unfail pace failures.latest
failures.between queues length pause unpause queue.forget due latency stats figures workers worker.deregister
worker.alive workers.alive config.get config.set config.unset recur recur.get recur.update recur.tag recur.untag
unrecur page tidy stage outcome stuck group.open group.close group.get group.jobs groups worker.report worker.reports
worker.request worker.stacks index.take index.put index.sweep index.count index.classes index.find once ]]

if KEYS[1] and (KEYS[2] or KEYS[1] ~= prefix or not find(prefix, '{.+}')) then
  error('No Keys should be provided')
elseif not command then
  error('Must provide a command')
elseif not now or now - now ~= 0 then -- not a number, or not one that Redis accepts
  local is_command = find(COMMANDS, '%s' .. (string.gsub(command, '%W', '%%%0')) .. '%s')
  error(is_command and 'Arg "now" missing or not a number: ' .. (ARGV[2] or 'nil') or 'Unknown command ' .. command)
end

local JOB, QUEUE = prefix .. 'j:', prefix .. 'q:'

-- once  key number seconds command [argument ...]
--   Runs a command of the outbox row `key`, unless it has run, and writes a marker for `seconds`, in one step. `number`
--   counts the row's commands from 1, without gaps. Commands: `put`, `group.open`, `group.close`. With the number 0 and
--   `cancel`, cancels jobs, and no command of the row runs from then on.
--   Reply: the command's; nil if it has run before
-- Cost  one step more than the command
-- The marker, `once:<key>`, is the number of the row's last command.
local ARGV, once = ARGV, nil
if command == 'once' then
  local number, done = tonumber(ARGV[4]), tonumber(call('GET', prefix .. 'once:' .. (ARGV[3] or '')) or 0)
  local allowed = number == 0 and {cancel = 1} or {put = 1, ['group.open'] = 1, ['group.close'] = 1}
  if not number or not tonumber(ARGV[5]) or not allowed[ARGV[6]] then
    error('Once(): needs a key, a number, seconds, and one of its commands')
  elseif number > 0 and number <= done then
    call('EXPIRE', prefix .. 'once:' .. ARGV[3], ARGV[5])
    return
  elseif number > done + 1 then
    error('Once(): command ' .. number .. ' of ' .. ARGV[3] .. ' follows ' .. done)
  end
  once = {prefix .. 'once:' .. ARGV[3], number > 0 and number or 1e9, 'EX', ARGV[5]}
  command = ARGV[6]
  ARGV = {command, now, unpack(ARGV, 7)}
end

-- Write the marker of `once`: the last change of a command. An error before it, which undoes nothing, leaves no marker,
-- so that the command is carried out again.
local function mark_once()
  if once then
    call('SET', unpack(once))
  end
end
