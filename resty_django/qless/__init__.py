"""A job queue on Redis or Valkey that shares its data with the qless clients of other languages.

`resty_django.qless.core` is the script that all of it stands on; docs/qless/core.md tells its commands.
"""
