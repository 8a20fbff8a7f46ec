"""Settings of the demo site under django-jazzmin, for `make themes`."""

from project.settings import *  # noqa: F403
from project.settings import INSTALLED_APPS

INSTALLED_APPS = ["jazzmin", *INSTALLED_APPS]
JAZZMIN_SETTINGS = {"use_google_fonts_cdn": False}
JAZZMIN_UI_TWEAKS = {"default_theme_mode": "auto"}
# Jazzmin's templates contain scripts and style sheets.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
)
