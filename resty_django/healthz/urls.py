"""URLs for load balancers and Kubernetes.

path("healthz/", include("resty_django.healthz.urls")),  # /healthz/live and /healthz/ready
"""

from __future__ import annotations

from django.urls import path

from .views import live, ready

app_name = "resty_healthz"
urlpatterns = [path("live", live, name="live"), path("ready", ready, name="ready")]
