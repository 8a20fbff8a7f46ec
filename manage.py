#!/usr/bin/env python
"""Django's command line, for the demo site."""

from __future__ import annotations

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    try:
        from django.core.management import execute_from_command_line
    except ImportError as error:
        text = "Django is not installed for this Python; run `make venv` and use .venv/bin/python."
        raise ImportError(text) from error
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
