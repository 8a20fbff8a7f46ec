"""Rules in Lua, as id_server has them: a sandbox for scripts."""
