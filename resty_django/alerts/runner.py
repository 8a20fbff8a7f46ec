"""Evaluation of the rules: once, or repeatedly in a thread of a worker process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from django.db import connections

from resty_django import metrics
from resty_django.conf import conf
from resty_django.health import described
from resty_django.text import logger

from . import store
from .delivery import channels, deliver
from .incidents import State, evaluate
from .readings import read
from .rules import parse_rules

log = logger("resty_django.alerts")

GAP: Final = 0.8
"""The share of the interval that must have passed since the last evaluation by any process."""
JOIN_TIMEOUT: Final = 5.0


def run_once(*, force: bool = True) -> list[str]:
    """Evaluate all rules, send what has begun or ended, and return the errors of sending. Raise `SharedDictError`.

    Without `force`, do nothing but retries if another process has just evaluated.
    """
    now = time.time()
    if force or _is_due(store.load(), now):
        rules = parse_rules(conf.alerts.rules)
        readings = read(rules, metrics.collected())
        ways = channels()

        def step(state: State) -> tuple[State, None]:
            if not force and not _is_due(state, now):
                return state, None
            return evaluate(state, rules, readings, now, ways), None

        store.change(step)
    return deliver()


def _is_due(state: State, now: float) -> bool:
    return not 0 <= now - state.evaluated < GAP * conf.alerts.interval


class Runner:
    """Evaluates the rules at intervals until `stop` is called. An evaluation that fails is logged once."""

    def __init__(self, evaluation: Callable[[], object] = lambda: run_once(force=False)) -> None:
        self._evaluation = evaluation
        self._stopped = threading.Event()
        self._failing = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Evaluate in a thread."""
        self._thread = threading.Thread(target=self.run, name="resty-alerts", daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Evaluate in this thread."""
        while not self._stopped.is_set():
            try:
                self._evaluation()
                self._failing = False
            except Exception as error:
                if not self._failing:
                    log.error("The rules of alerts cannot be evaluated: %s", described(error))
                self._failing = True
            finally:
                connections.close_all()
            self._stopped.wait(conf.alerts.interval)

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(JOIN_TIMEOUT)


def start_in_worker() -> Runner | None:
    """Start evaluating in a worker process if the site has rules and wants that. Return what to stop."""
    try:
        if not conf.alerts.rules or not conf.alerts.workers:
            return None
    except Exception as error:  # jobs can run without alerts
        log.error("The rules of alerts cannot be read: %s", described(error))
        return None
    runner = Runner()
    runner.start()
    return runner
