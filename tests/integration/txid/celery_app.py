"""A Celery app for the tests: run as a worker in a separate process, imported by the test that sends tasks."""

from __future__ import annotations

import logging.config
import os
from typing import Any

import django
from celery import Celery, signals

from resty_django.txid import current, current_request_id, current_trace
from resty_django.txid.celery import connect

BROKER = os.environ.get("TXID_TEST_BROKER")
if BROKER:  # this is the worker
    django.setup()
    connect()
app = Celery("tests", broker=BROKER, backend=BROKER)
app.conf.update(
    broker_connection_retry_on_startup=True,
    task_default_queue="txid-tests",
    redis_socket_timeout=10,
    worker_send_task_events=False,
)
log = logging.getLogger("tests.tasks")


@signals.setup_logging.connect
def set_up_logging(**kwargs: Any) -> None:
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "filters": {"txid": {"()": "resty_django.txid.logging.TxidFilter"}},
            "formatters": {"json": {"()": "resty_django.txid.logging.JsonFormatter"}},
            "handlers": {"out": {"class": "logging.StreamHandler", "filters": ["txid"], "formatter": "json"}},
            "root": {"handlers": ["out"], "level": "INFO"},
        }
    )


def seen() -> dict[str, Any]:
    trace = current_trace()
    return {
        "txid": current(),
        "request_id": current_request_id(),
        "trace": trace and [trace.trace_id, trace.parent_id, trace.span_id, trace.state],
    }


@app.task
def tell(*before: Any) -> Any:
    log.info("telling")
    return [*(before[0] if before else []), seen()]


@app.task(bind=True, max_retries=2)
def retrying(self: Any) -> Any:
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    return [seen()]


@app.task
def failing() -> None:
    raise RuntimeError("broken on purpose")


@app.task
def nested() -> Any:
    """Return the txid of a task that calls another one in its own process, in the call and afterwards."""
    return [seen(), *tell.apply().get(disable_sync_subtasks=False), seen()]
