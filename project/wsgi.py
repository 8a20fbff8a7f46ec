"""The site for a WSGI server; serves the static files too, since the demo has no web server before it."""

from __future__ import annotations

import os

from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")

application = StaticFilesHandler(get_wsgi_application())
