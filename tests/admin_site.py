"""Settings of the smallest sites that have Django's admin."""

from __future__ import annotations

from typing import Any, Final

CONTRIB: Final = [f"django.contrib.{name}" for name in ("admin", "auth", "contenttypes", "sessions", "messages")]
MIDDLEWARE: Final = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES: Final[list[dict[str, Any]]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
