"""The job queue over HTTP: `path("api/jobs/", include("resty_django.qless.api.urls"))`.

| address | does | permission |
|---|---|---|
| `GET queues/` | all queues, with their jobs by state | `resty_qless.view_job` |
| `GET queues/<name>/` | one queue | `resty_qless.view_job` |
| `GET queues/<name>/stats/` | its statistics of a day, and its throughput | `resty_qless.view_job` |
| `POST queues/<name>/pause/`, `POST queues/<name>/unpause/` | pauses and unpauses it | `resty_qless.pause_queue` |
| `GET jobs/` | lists and searches, page by page | `resty_qless.view_job` |
| `POST jobs/` | enqueues a job | `resty_qless.start_job` |
| `GET jobs/<jid>/` | one job, with its arguments, history and result | `resty_qless.view_job` |
| `DELETE jobs/<jid>/` | cancels it | `resty_qless.cancel_job` |
| `POST jobs/<jid>/retry/` | retries a failed job | `resty_qless.retry_job` |
| `GET failed/` | failed jobs by failure group | `resty_qless.view_job` |
| `POST failed/<group>/retry/` | retries the failed jobs of a group | `resty_qless.retry_job` |
| `GET workers/` | all workers | `resty_qless.view_job` |
| `GET recurring/` | recurring jobs | `resty_qless.view_job` |

Every address needs an authenticated user. Arguments are redacted by `resty_django.qless.redaction`. Names in addresses
are escaped twice, as in `resty_django.ids.api`.
"""

from __future__ import annotations

from resty_django import extras

extras.require("The HTTP interfaces need", "rest_framework")
