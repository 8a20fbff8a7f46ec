local prefix = 'ql:'
-- The core of qless: the one script that changes the data of its jobs, for clients in any language.
--
--   EVALSHA <sha1> 0 <command> <now> [argument ...]
--
-- All keys begin with `prefix`. Where that has a hash tag, such as {jobs}ql:, the prefix itself may be given as the one
-- key, so that a client of a cluster finds the node.
--
-- To make a function costs a call more than most commands do, so the parts follow each other from what is asked for
-- most: a call makes the functions of the parts up to that of its command, and few that it does not need.
local call, find, format, floor, encode = redis.call, string.find, string.format, math.floor, cjson.encode
local command, now = ARGV[1], tonumber(ARGV[2])
local COMMANDS = [[ put put.many requeue pop peek take complete fail retry heartbeat timeout progress cancel priority
depends log get multiget jobs search result track tag failed unfail queues length pause unpause queue.forget due stats
throughput workers worker.deregister config.get config.set config.unset recur recur.get recur.update recur.tag
recur.untag unrecur ]]

if KEYS[1] and (KEYS[2] or KEYS[1] ~= prefix or not find(prefix, '{.+}')) then
  error('No Keys should be provided')
elseif not command then
  error('Must provide a command')
elseif not now or now - now ~= 0 then -- not a number, or not one that Redis takes
  local known = find(COMMANDS, '%s' .. (string.gsub(command, '%W', '%%%0')) .. '%s')
  error(known and 'Arg "now" missing or not a number: ' .. (ARGV[2] or 'nil') or 'Unknown command ' .. command)
end

local JOB, QUEUE = prefix .. 'j:', prefix .. 'q:'
