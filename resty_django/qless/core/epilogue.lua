-- No file above defines the command.
error('Unknown command ' .. command)
