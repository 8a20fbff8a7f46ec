"""Lua rules, compatible with id_server, run in a sandbox."""
