"""Settings of the demo site, configurable through environment variables:

DJANGO_DEBUG=1            error pages for developers (default: off)
DJANGO_SECRET_KEY         the secret key (default: generated once, stored in the folder for variable data)
RESTY_VAR                 the folder for variable data (default: ./var)
RESTY_DICTS               the folder of the shared dictionaries (default: memory)
RESTY_TEST_DB             sqlite (default), mysql or postgres; servers on 127.0.0.1, see RESTY_DB_*
DEMO_LOG                  the form of log lines: line (default) or json
DEMO_HTTP, DEMO_UDP       host:port of the site and of the ID server, for the page that shows the parts
DEMO_TRAFFIC=1            simulated visitors come from this machine, each under a different address
REDIS_URL                 a Redis or Valkey for jobs and one more dictionary; the cache uses its database 1 (default:
                          the cache is in the memory of the process, and there are no jobs)
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import resty_django

BASE_DIR = Path(__file__).resolve().parent.parent
VAR = Path(os.environ.get("RESTY_VAR", BASE_DIR / "var"))
VAR.mkdir(parents=True, exist_ok=True)


def _secret_key() -> str:
    from_environment = os.environ.get("DJANGO_SECRET_KEY")
    if from_environment:
        return from_environment
    path = VAR / "secret_key"
    if not path.exists():
        draft = VAR / f"secret_key.{os.getpid()}"
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(50))
        with contextlib.suppress(FileExistsError):  # another process was first; use its key
            os.link(draft, path)
        draft.unlink()
    return path.read_text()


def _database() -> dict[str, Any]:
    kind = os.environ.get("RESTY_TEST_DB", "sqlite")
    server = {
        "NAME": os.environ.get("RESTY_DB_NAME", "resty_demo"),
        "HOST": os.environ.get("RESTY_DB_HOST", "127.0.0.1"),
        "PORT": os.environ.get("RESTY_DB_PORT", ""),
        "PASSWORD": os.environ.get("RESTY_DB_PASSWORD", ""),
    }
    if kind == "sqlite":
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": os.environ.get("RESTY_DB_NAME", VAR / "db.sqlite3"),
            # Left at synchronous=FULL: with NORMAL, a power failure may undo a committed reservation.
            "OPTIONS": {
                "timeout": 20,
                "transaction_mode": "IMMEDIATE",
                "init_command": "PRAGMA journal_mode=WAL",
            },
            # A file, because an in-memory database is locked as a whole by each thread that uses it.
            "TEST": {"NAME": VAR / f"test-{os.getpid()}.sqlite3"},
        }
    if kind == "mysql":
        return {
            "ENGINE": "django.db.backends.mysql",
            "USER": os.environ.get("RESTY_DB_USER", "root"),
            "OPTIONS": {
                "charset": "utf8mb4",
                "isolation_level": "read committed",
                "connect_timeout": 5,
                "read_timeout": 60,
                "write_timeout": 60,
            },
            "TEST": {"CHARSET": "utf8mb4"},
            **server,
        }
    if kind == "postgres":
        return {
            "ENGINE": "django.db.backends.postgresql",
            "USER": os.environ.get("RESTY_DB_USER", "postgres"),
            "OPTIONS": {"connect_timeout": 5, "tcp_user_timeout": 10_000},
            **server,
        }
    raise ValueError(f"RESTY_TEST_DB is {kind!r}; it must be sqlite, mysql or postgres.")


def _caches() -> dict[str, Any]:
    if not REDIS_URL:
        return {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    redis = {
        "BACKEND": "django_redis.cache.RedisCache",
        "KEY_PREFIX": "demo",
        "OPTIONS": {"SOCKET_TIMEOUT": 5, "SOCKET_CONNECT_TIMEOUT": 5},
    }
    own_database = urlsplit(REDIS_URL)._replace(path="/1").geturl()  # `cache.clear()` empties a database
    return {"default": {**redis, "LOCATION": own_database}, "resty": {**redis, "LOCATION": REDIS_URL}}


def _shared_dicts() -> dict[str, Any]:
    folder = os.environ.get("RESTY_DICTS")
    dicts: dict[str, Any] = {name: {"PATH": folder} for name in ("default", "bans", "events", "limits")}
    if REDIS_URL:
        dicts["shared"] = {"ENGINE": "redis", "ALIAS": "resty"}
    return dicts


REDIS_URL = os.environ.get("REDIS_URL", "")
SECRET_KEY = _secret_key()
DEMO_TRAFFIC = os.environ.get("DEMO_TRAFFIC", "") == "1"
DEMO_HTTP = os.environ.get("DEMO_HTTP", "")
DEMO_UDP = os.environ.get("DEMO_UDP", "")
DEMO = "DEMO_TRAFFIC" in os.environ
"""Whether `manage.py demo` has started this process."""
DEBUG = os.environ.get("DJANGO_DEBUG", "") == "1"
ALLOWED_HOSTS = os.environ.get("DJANGO_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]").split(",")

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "rest_framework.authtoken",
    "drf_spectacular",
    *resty_django.ALL_APPS,
    "project",
    "project.shop",
]

MIDDLEWARE = [
    "resty_django.txid.middleware.TxidMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "project.middleware.content_security_policy",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "resty_django.limits.middleware.LimitMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

if DEMO:  # the tests log in with wrong passwords from one address
    AUTHENTICATION_BACKENDS = [
        "resty_django.limits.login.LoginGuard",
        "django.contrib.auth.backends.ModelBackend",
    ]
    MIDDLEWARE.append("resty_django.limits.login.LoginGuardMiddleware")

ROOT_URLCONF = "project.urls"
ASGI_APPLICATION = "project.asgi.application"
WSGI_APPLICATION = "project.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

JOBS = bool(REDIS_URL)
"""Whether a Redis is configured for the job queue."""

DATABASES = {"default": _database()}
CACHES = _caches()
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]

LANGUAGE_CODE = "en"
TIME_ZONE = "Europe/Berlin"
USE_I18N = True
USE_TZ = True

STATIC_URL = "static/"
STATIC_ROOT = VAR / "static"

X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
SESSION_COOKIE_SAMESITE = "Lax"
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
)

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {
        "people": {"()": "project.traffic.PeopleFilter"},
        "txid": {"()": "resty_django.txid.logging.TxidFilter"},
    },
    "formatters": {
        "line": {"format": "{asctime} {levelname} {txid} {name}: {message}", "style": "{"},
        "json": {"()": "resty_django.txid.logging.JsonFormatter", "extra": ["status_code"]},
    },
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            "filters": ["people", "txid"] if DEMO_TRAFFIC else ["txid"],
            "formatter": os.environ.get("DEMO_LOG", "line"),
        }
    },
    "root": {"handlers": ["console"], "level": "WARNING"},
    "loggers": {"project": {"level": "INFO"}},
}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "rest_framework.authentication.SessionAuthentication",
        "rest_framework.authentication.TokenAuthentication",
        "rest_framework.authentication.BasicAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_THROTTLE_RATES": {"prices": "10/m"},
}
SPECTACULAR_SETTINGS = {
    "TITLE": "resty-django demo",
    "VERSION": resty_django.__version__,
    "SERVE_INCLUDE_SCHEMA": False,
}

RESTY_DJANGO: dict[str, Any] = {
    "IDS": {"NODE": "demo"},
    "SHARED_DICTS": _shared_dicts(),
    **(
        {
            "QLESS": {
                "ALIAS": "resty",
                "LINKS": "project.shop.tasks.order_links",
                "ARCHIVE": {"RETENTION": "365d" if DEMO else None},
                "OUTBOX": True,  # the jobs of an order are committed with it
            }
        }
        if JOBS
        else {}
    ),
    "LIMITS": {
        # The simulated visitors set their addresses; on a real site, list the load balancers.
        "PROXIES": ["127.0.0.0/8", "::1/128"] if DEMO_TRAFFIC else [],
        **({"LOGIN": {"BAN": "2m"}} if DEMO else {}),
        "RULES": [
            {
                "name": "order-pages",
                "description": "Prevents guessing of order numbers.",
                "algorithm": "sliding_window",
                "limit": 60,
                "window": "1min",
                "route": "shop:order",
            },
            {
                "name": "try-it",
                "description": "The limit of the page that shows the parts.",
                "algorithm": "sliding_window",
                "limit": 8,
                "window": "10s",
            },
        ],
    },
}
