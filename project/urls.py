from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView

urlpatterns = [
    path("", include("project.shop.urls")),
    path("admin/", admin.site.urls),
    path("api/ids/", include("resty_django.ids.api.urls")),
    path("api/schema/", SpectacularAPIView.as_view(), name="schema"),
]
