"""`--reload`: restarts the worker when code of the site changes, for development."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from django.apps import apps
from django.core.management.base import OutputWrapper
from django.utils import autoreload

from resty_django.processes.supervisor import ENDING, end_with_parent, noted_signals
from resty_django.text import one_line


def is_reloaded() -> bool:
    """Return whether this process was started by `run_reloaded`, as a process of `runserver` is by its parent."""
    return os.environ.get(autoreload.DJANGO_AUTORELOAD_ENV) == "true"


def run_reloaded(stdout: OutputWrapper) -> int:
    """Run this command line in a child process, and again after each change, until a signal. Return its exit code.

    Django's `run_with_reloader` would run the worker in a thread of a process that ends at a change. Here the child
    ends as after SIGTERM, and one that cannot start, because of a mistake in the code, starts again once it is
    corrected. It watches the modules that this process has imported, and all modules of the site's apps.
    """
    changed: list[Path] = []
    ending: list[int] = []
    has_terminal = sys.stdin.isatty()  # whose Ctrl-C reaches the child, too

    def write(text: str) -> None:
        stdout.write(text)
        stdout.flush()

    def on_change(file_path: Path, **kwargs: object) -> bool:
        changed.append(file_path)
        return True  # so that Django does not end this process

    def on_signal(number: int) -> None:
        if number in ENDING or number == signal.SIGQUIT:
            ending.append(number)
        if number != signal.SIGINT or not has_terminal:
            child.send_signal(number)

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - this command line
            autoreload.get_child_arguments(),
            env={**os.environ, autoreload.DJANGO_AUTORELOAD_ENV: "true"},
            process_group=None if has_terminal else 0,  # a signal to the group must not arrive twice
            preexec_fn=end_with_parent(),
        )

    reloader = autoreload.get_reloader()
    for config in apps.get_app_configs():
        if not {"site-packages", "dist-packages"} & {*Path(config.path).parts}:
            reloader.watch_dir(config.path, "**/*.py")
    autoreload.autoreload_started.send(sender=reloader)  # templates and translations
    autoreload.file_changed.connect(on_change)
    child, is_reported = start(), False
    watched = (*ENDING, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
    with noted_signals(*watched, note=on_signal):
        for _ in reloader.tick():
            if changed and not ending:
                write(f"{one_line(changed[0])} has changed. Restarting.")
                child.terminate()
                child.wait()
                changed.clear()
                if not ending:
                    child, is_reported = start(), False
            if ending:
                break
            if child.poll() is not None and not is_reported:
                write(f"The worker has ended with exit code {child.returncode}. It starts again after a change.")
                is_reported = True
        return child.wait()
