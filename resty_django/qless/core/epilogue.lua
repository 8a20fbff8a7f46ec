-- Nothing above knew the command.
error('Unknown command ' .. command)
