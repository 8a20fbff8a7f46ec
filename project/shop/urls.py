from __future__ import annotations

from django.urls import path
from django.views.generic import RedirectView

from project.shop import api, parts, views

app_name = "shop"

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="shop:parts")),
    path("orders/", views.home, name="home"),
    path("items/", views.items, name="items"),
    path("orders/<str:number>/", views.order, name="order"),
    path("parts/", parts.parts, name="parts"),
    path("parts/limited/", parts.limited, name="limited"),
    path("parts/<str:action>/", parts.try_part, name="try"),
    path("price-list/", views.price_list, name="price-list"),
    path("quotas/", views.quotas, name="quotas"),
    path("stock/", views.stock, name="stock"),
    path("visitors/", views.visitors, name="visitors"),
    path("api/prices/", api.PricesView.as_view(), name="prices"),
]
