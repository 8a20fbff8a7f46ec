from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView

from resty_django import metrics

urlpatterns = [
    path("", include("project.shop.urls")),
    path("admin/", admin.site.urls),
    path("api/ids/", include("resty_django.ids.api.urls")),
    path("api/jobs/", include("resty_django.qless.api.urls")),
    path("metrics", metrics.view, name="metrics"),
    path("healthz/", include("resty_django.healthz.urls")),
    path("api/schema/", SpectacularAPIView.as_view(), name="schema"),
]
