from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "project.shop"
    label = "shop"
    verbose_name = "Demo shop"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        import_module("project.shop.everywhere")  # registers the handler of its event
