"""The site for an ASGI server; serves the static files too, since the demo has no web server before it."""

from __future__ import annotations

import os
import warnings

from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
# Django streams static files from disk with a sync iterator, and warns about it once.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")

application = ASGIStaticFilesHandler(get_asgi_application())
