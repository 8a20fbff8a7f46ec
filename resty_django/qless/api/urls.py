from __future__ import annotations

from django.urls import path, register_converter

from resty_django.api.text import NameConverter

from . import verbs, views

app_name = "resty_qless_api"

register_converter(NameConverter, "resty_qless_name")

urlpatterns = [
    path("queues/", views.QueuesView.as_view(), name="queues"),
    path("queues/<resty_qless_name:name>/", views.QueueView.as_view(), name="queue"),
    path("queues/<resty_qless_name:name>/stats/", views.StatsView.as_view(), name="stats"),
    path("queues/<resty_qless_name:name>/throughput/", views.ThroughputView.as_view(), name="throughput"),
    path("queues/<resty_qless_name:name>/jobs/", views.QueueJobsView.as_view(), name="queue-jobs"),
    path("queues/<resty_qless_name:name>/pause/", verbs.PauseView.as_view(), name="pause"),
    path("queues/<resty_qless_name:name>/unpause/", verbs.UnpauseView.as_view(), name="unpause"),
    path("jobs/", views.SearchView.as_view(), name="jobs"),
    path("jobs/<resty_qless_name:jid>/", verbs.JobView.as_view(), name="job"),
    path("jobs/<resty_qless_name:jid>/retry/", verbs.RetryView.as_view(), name="retry"),
    path("failed/", views.FailedView.as_view(), name="failed"),
    path("failed/<resty_qless_name:group>/", views.GroupView.as_view(), name="group"),
    path("failed/<resty_qless_name:group>/retry/", verbs.RetryGroupView.as_view(), name="retry-group"),
    path("workers/", views.WorkersView.as_view(), name="workers"),
    path("workers/<resty_qless_name:name>/", views.WorkerView.as_view(), name="worker"),
    path("recurring/", views.RecurringView.as_view(), name="recurring"),
    path("recurring/<resty_qless_name:jid>/", views.RecurringJobView.as_view(), name="recurring-job"),
]
