"""Shared parts of the JSON APIs. They need Django REST framework, from the extra `api`."""

from __future__ import annotations

from resty_django import extras

extras.require("The HTTP interfaces need", "rest_framework")
