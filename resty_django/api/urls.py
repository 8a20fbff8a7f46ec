from __future__ import annotations

from django.urls import path

from .views import OverviewView

app_name = "resty_django_api"

urlpatterns = [path("overview/", OverviewView.as_view(), name="overview")]
