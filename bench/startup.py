"""What ALL_APPS adds to the start of a site: `manage.py check` with and without it, side by side.

    python bench/startup.py [--runs N] [--json FILE]

The site is the one that `startproject` writes, with `rest_framework` and the admin. Each run is a process, the sites
take turns, and the median of the runs counts; runs before them write the bytecode. Measured are the CPU seconds of the
process (user and system, `os.wait4`) and its largest resident set. Wanted: ALL_APPS adds at most 0.2 s and 7 MB. Run it
where all extras are installed, since modules that are missing cost nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_SECONDS = 0.2
MOST_MEGABYTES = 7.0
SETTINGS = """
from pathlib import Path

SECRET_KEY = "bench"
DEBUG = True
ALLOWED_HOSTS = []
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "urls"
TEMPLATES = [
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
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": Path(__file__).parent / "db.sqlite3"}}
STATIC_URL = "static/"
"""
WITH_ALL_APPS = """
import resty_django
from plain import *

INSTALLED_APPS += resty_django.ALL_APPS
"""
URLS = """
from django.contrib import admin
from django.urls import path

urlpatterns = [path("admin/", admin.site.urls)]
"""
SITES = {"Django + DRF": "plain", "with ALL_APPS": "with_all_apps"}


def write_site(folder: Path) -> None:
    for name, text in (("plain", SETTINGS), ("with_all_apps", WITH_ALL_APPS), ("urls", URLS)):
        (folder / f"{name}.py").write_text(text)


def check(folder: Path, settings: str) -> tuple[float, float]:
    """CPU seconds and megabytes of one `manage.py check`."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment |= {"DJANGO_SETTINGS_MODULE": settings, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    process = subprocess.Popen(
        [sys.executable, "-m", "django", "check"], cwd=folder, env=environment, stdout=subprocess.DEVNULL
    )
    _pid, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"manage.py check of {settings} failed.")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024  # in kB


def measure(folder: Path, runs: int) -> dict[str, dict[str, float]]:
    """The medians by site."""
    usages: dict[str, list[tuple[float, float]]] = {name: [] for name in SITES}
    for settings in SITES.values():
        check(folder, settings)
    for _ in range(runs):
        for name, settings in SITES.items():
            usages[name].append(check(folder, settings))
    return {
        name: {
            "seconds": statistics.median(seconds for seconds, _megabytes in pairs),
            "megabytes": statistics.median(megabytes for _seconds, megabytes in pairs),
        }
        for name, pairs in usages.items()
    }


def report(medians: dict[str, dict[str, float]]) -> None:
    print("manage.py check: CPU seconds and the largest resident set")
    for name, figures in medians.items():
        print(f"  {name:16s} {figures['seconds']:6.3f} s   {figures['megabytes']:6.1f} MB")
    plain, full = medians.values()
    for unit, short, most in (("seconds", "s", MOST_SECONDS), ("megabytes", "MB", MOST_MEGABYTES)):
        added = full[unit] - plain[unit]
        print(
            f"  ALL_APPS adds {added:.3f} {short} (at most {most} {short}: {'reached' if added <= most else 'MISSED'})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="of each site")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_site(folder)
        medians = measure(folder, options.runs)
    report(medians)
    if options.json:
        options.json.write_text(json.dumps(medians, indent=1))


if __name__ == "__main__":
    main()
