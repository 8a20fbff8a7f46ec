from __future__ import annotations

from django.urls import path, register_converter

from resty_django.api.converters import NameConverter

from . import views

app_name = "resty_qless_api"

register_converter(NameConverter, "resty_qless_name")


urlpatterns = [
    path("queues/", views.QueuesView.as_view(), name="queues"),
    path("queues/<resty_qless_name:name>/", views.QueueView.as_view(), name="queue"),
    path("queues/<resty_qless_name:name>/stats/", views.StatsView.as_view(), name="stats"),
    path("queues/<resty_qless_name:name>/throughput/", views.ThroughputView.as_view(), name="throughput"),
    path("queues/<resty_qless_name:name>/jobs/", views.QueueJobsView.as_view(), name="queue-jobs"),
    path("queues/<resty_qless_name:name>/pause/", views.PauseView.as_view(), name="pause"),
    path("queues/<resty_qless_name:name>/unpause/", views.UnpauseView.as_view(), name="unpause"),
    path("jobs/", views.SearchView.as_view(), name="jobs"),
    path("jobs/<resty_qless_name:jid>/", views.JobView.as_view(), name="job"),
    path("jobs/<resty_qless_name:jid>/retry/", views.RetryView.as_view(), name="retry"),
    path("jobs/<resty_qless_name:jid>/graph/", views.GraphView.as_view(), name="graph"),
    path("jobs/<resty_qless_name:jid>/graph/cancel/", views.CancelGraphView.as_view(), name="cancel-graph"),
    path("jobs/<resty_qless_name:jid>/graph/retry/", views.RetryGraphView.as_view(), name="retry-graph"),
    path("groups/", views.JobGroupsView.as_view(), name="job-groups"),
    path("groups/<resty_qless_name:group>/", views.JobGroupView.as_view(), name="job-group"),
    path("groups/<resty_qless_name:group>/jobs/", views.MembersView.as_view(), name="members"),
    path("groups/<resty_qless_name:group>/cancel/", views.CancelGroupView.as_view(), name="cancel-group"),
    path("groups/<resty_qless_name:group>/retry/", views.RetryMembersView.as_view(), name="retry-members"),
    path("stuck/", views.StuckView.as_view(), name="stuck"),
    path("failed/", views.FailedView.as_view(), name="failed"),
    path("failed/<resty_qless_name:group>/", views.GroupView.as_view(), name="group"),
    path("failed/<resty_qless_name:group>/retry/", views.RetryGroupView.as_view(), name="retry-group"),
    path("workers/", views.WorkersView.as_view(), name="workers"),
    path("workers/<resty_qless_name:name>/", views.WorkerView.as_view(), name="worker"),
    path("recurring/", views.RecurringView.as_view(), name="recurring"),
    path("recurring/<resty_qless_name:jid>/", views.RecurringJobView.as_view(), name="recurring-job"),
]
