from __future__ import annotations

from django.urls import path

from project.shop import views

app_name = "shop"

urlpatterns = [
    path("", views.home, name="home"),
    path("orders/<str:number>/", views.order, name="order"),
]
