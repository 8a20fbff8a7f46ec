"""A model without a table, for Django's permissions and admin."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from resty_django.models import Unmanaged


class Cache(Unmanaged):
    """A cache in the admin: its name and its permissions."""

    class Meta(Unmanaged.Meta):
        verbose_name = _("cache")
        verbose_name_plural = _("caches")
        permissions = [
            ("view_cache_items", _("Can see keys and values of caches")),
            ("delete_cache_item", _("Can delete keys of caches")),
            ("purge_cache", _("Can purge caches")),
        ]
