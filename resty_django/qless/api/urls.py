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
    path("queues/<resty_qless_name:name>/pause/", views.PauseView.as_view(), name="pause"),
    path("queues/<resty_qless_name:name>/unpause/", views.UnpauseView.as_view(), name="unpause"),
    path("jobs/", views.JobsView.as_view(), name="jobs"),
    path("jobs/<resty_qless_name:jid>/", views.JobView.as_view(), name="job"),
    path("jobs/<resty_qless_name:jid>/retry/", views.RetryView.as_view(), name="retry"),
    path("failed/", views.FailedView.as_view(), name="failed"),
    path("failed/<resty_qless_name:group>/retry/", views.RetryGroupView.as_view(), name="retry-group"),
    path("workers/", views.WorkersView.as_view(), name="workers"),
    path("recurring/", views.RecurringView.as_view(), name="recurring"),
]
