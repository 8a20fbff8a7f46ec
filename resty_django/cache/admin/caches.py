"""Admin of caches: the list, a cache's page, and its operations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django.admin.base import ReadOnlyAdmin, object_page, viewer_page
from resty_django.admin.export import query_without
from resty_django.admin.formatting import number, unavailable
from resty_django.admin.forms import delete_key
from resty_django.admin.lists import Tab
from resty_django.admin.operations import Operation, OperationResult
from resty_django.admin.statistics import KeyView, key_of, why
from resty_django.admin.tables import (
    Listing,
    Row,
    SortOrder,
    changed,
    filter_form,
    heads_of,
    listed_table,
    listing,
    order_of,
)
from resty_django.shdict import SharedDictError
from resty_django.shdict.facts import facts_of as dictionary_facts

from ..errors import CacheError, UnknownCache
from ..facts import facts, facts_of
from ..inventory import CacheInfo, all_caches
from ..mlcache.cache import MLCache
from ..models import Cache
from . import columns, items
from .forms import PurgeForm
from .statistics import CHART_PERIODS, CacheFigures, dictionary_text, kind_of, options
from .stores import statuses, troubles
from .tags import TagForm, latest_tags

TEMPLATES: Final = "admin/resty_cache/cache"


def _delete_key(obj: Cache, data: dict[str, Any]) -> OperationResult:
    items.delete(_usable_cache(all_caches().get(obj.name)), data["key"])
    text = KeyView.of(data["key"]).text
    message = format_html(_('Deleted the key <code class="resty-id">{}</code>.'), text)
    return OperationResult(f"Deleted the key “{text}”.", message)


def _invalidate_tag(obj: Cache, data: dict[str, Any]) -> OperationResult:
    items.invalidate_tag(_usable_cache(all_caches().get(obj.name)), data["tag"])
    text = KeyView.of(data["tag"]).text
    message = format_html(_('Invalidated the tag <code class="resty-id">{}</code>.'), text)
    return OperationResult(f"Invalidated the tag “{text}”.", message)


def _purge_form(data: Any, obj: Cache) -> PurgeForm:
    cache = _usable_cache(all_caches().get(obj.name))
    return PurgeForm(data, obj.name, keeps_stale=isinstance(cache, MLCache))


def _losses(obj: Cache) -> dict[str, Any]:
    """Return what a purge deletes: dictionaries, other caches in them, and the counts if they are stored there."""
    caches = all_caches()
    purged = caches[obj.name]
    dictionaries = set(_usable_cache(purged).dictionaries)
    neighbours = [
        f"{name} ({kind_of(info)})"
        for name, info in caches.items()
        if name != obj.name and info.cache is not None and dictionaries & set(info.cache.dictionaries)
    ]
    counts_go = purged.counter is not None and purged.counter.dictionary in dictionaries
    places = [dictionary_text(dictionary) for dictionary in dictionaries]
    counts = [stats.keys if (stats := dictionary_facts(dictionary.name).stats) else None for dictionary in dictionaries]
    keys = None if None in counts else number(sum(filter(None, counts)))
    return {"places": places, "others": neighbours, "counts_go": counts_go, "keys": keys}


def _purge(obj: Cache, data: dict[str, Any]) -> OperationResult:
    free = bool(data.get("free"))
    items.purge(_usable_cache(all_caches().get(obj.name)), free)
    message = _("Purged the cache and freed its memory.") if free else _("Purged the cache.")
    return OperationResult(f"Purged the cache{' and freed its memory' if free else ''}.", message)


class CacheAdmin(ReadOnlyAdmin[Cache]):
    refusals: ClassVar = (CacheError, SharedDictError)
    object_route = "<path:object_id>"
    operations = (
        delete_key("delete_cache_item", _delete_key, TEMPLATES),
        Operation(
            "invalidate_tag",
            gettext_lazy("Invalidate a tag"),
            "delete_cache_item",
            _invalidate_tag,
            form=lambda data, obj, token: TagForm(data, key_of(token)),
            keyed=True,
            button=gettext_lazy("Invalidate"),
            danger=True,
            template=f"{TEMPLATES}/invalidate_tag.html",
        ),
        Operation(
            "purge",
            gettext_lazy("Purge a cache"),
            "purge_cache",
            _purge,
            form=_purge_form,
            explain=_losses,
            button=gettext_lazy("Delete everything"),
            danger=True,
            template=f"{TEMPLATES}/purge.html",
        ),
    )

    class Media:
        css: ClassVar = {"all": ["resty_cache/admin.css"]}

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Cache | None:
        return Cache(name=object_id) if object_id in all_caches() else None

    # --- pages ----------------------------------------------------------------------------------------------------

    @viewer_page
    def changelist_view(self, request: HttpRequest) -> HttpResponse:
        rows = [CacheFigures(cache) for cache in facts().caches]
        note = _(
            "Calls in the last hour, in all processes, by level. Processes flush their counts about once per second, "
            "together with calls that reach the source."
        )
        caches = listed_table(
            listing(request, columns.LIST, rows),
            self._row,
            caption=str(capfirst(self.opts.verbose_name_plural)),
            export="caches",
            note=note,
        )
        return self.list_page(request, caches, notes=troubles(), filter=filter_form(request), live=True)

    def _row(self, figures: CacheFigures) -> Row:
        cells = {"name": self.link(figures.name), "kind": figures.kind}
        if figures.error:
            return Row(cells | {"error": unavailable(figures.error)})
        shares = {level.kind: level.hour_share for level in figures.levels}
        spark = format_html('<span class="resty-spark">{}</span>', figures.spark)
        return Row(cells | {"calls": figures.calls, "hits": figures.hits, **shares, "error": spark})

    @object_page
    def change_view(self, request: HttpRequest, obj: Cache) -> HttpResponse:
        """Return the page of a cache. URL parameters: `key` or `k`, a key or its token; `find`, a key prefix; `page`, a
        page number; `o`, the order of the keys; `o-missed`, `p-missed` and others, order and page of the other tables;
        `period` of the charts.
        """
        info = all_caches()[obj.name]
        usable = info.cache is not None
        cache_figures, tags = CacheFigures(facts_of(info)), self._tags(request, obj, info)
        period, of_tables = (
            request.GET.get("period", "hour"),
            [f"{of}-{name}" for name in columns.TABLES for of in "op"],
        )
        found = self._items(request, obj, info)
        stores = _listing(request, "stores", statuses(info))
        may_view_items = self.may(request, "view_cache_items", obj)
        context = {
            "title": obj.name,
            "object": obj,
            "usable": usable,
            "figures": cache_figures,
            "live": not query_without(request, "period", *of_tables),
            "searched": not {"find", "key", "k"}.isdisjoint(request.GET),
            "unfolded": [
                *(name[2:] for name in of_tables if name in request.GET),
                *("stores" for store in stores if store.trouble),
            ],
            "charts": cache_figures.charts(period),
            "periods": [
                Tab(changed(request, period=name), label, name == period) for name, label in CHART_PERIODS.items()
            ],
            "missed": _listing(request, "missed", cache_figures.missed, "-callbacks"),
            "slow": _listing(request, "slow", cache_figures.slow, "-longest"),
            "options": options(info),
            "stores": stores,
            "may_view_items": may_view_items,
            "may_delete": usable and self.may(request, "delete_cache_item", obj),
            "may_purge": usable and self.may(request, "purge_cache", obj),
            **tags,
            **found,
        }
        return self.page(request, f"{TEMPLATES}/cache.html", context)

    def _tags(self, request: HttpRequest, obj: Any, info: CacheInfo) -> dict[str, Any]:
        """Return the latest invalidated tags, which may be as secret as keys."""
        if not self.may(request, "view_cache_items", obj):
            return {}
        try:
            tags = _listing(request, "tags", latest_tags(info), "-last")
            return {"tags": tags}
        except Exception as error:  # e.g. a dictionary that cannot be used
            return {"tags_fault": why(error)}

    def _items(self, request: HttpRequest, obj: Any, info: CacheInfo) -> dict[str, Any]:
        """Return the requested item or keys."""
        query = request.GET
        key = query.get("key") or key_of(query.get("k", ""))
        if not key and "find" not in query:
            return {}
        if not self.may(request, "view_cache_items", obj):
            raise PermissionDenied
        prefix, page = query.get("find", ""), query.get("page", "")
        try:
            cache = _usable_cache(info)
            if key:
                return {"key": KeyView.of(key), "typed": query.get("key", ""), "item": items.find(cache, key)}
            page_number = int(page) if page.isdecimal() and len(page) < 10 else 1
            order = order_of(request, columns.ITEMS)
            return {
                "text": prefix,
                "listed": items.search(cache, prefix, page_number, reverse=order.descending),
                "item_heads": heads_of(request, columns.ITEMS, order or SortOrder("key")),
                "pages": changed(request, page=None),
            }
        except Exception as error:  # e.g. a dictionary that cannot be used
            return {"key": KeyView.of(key), "text": prefix, "fault": why(error)}


def _listing(request: HttpRequest, name: str, rows: Iterable[Any], default: str = "") -> Listing[Any]:
    """Return a table of a cache's page with eight rows, sorted as the URL says."""
    return listing(request, columns.TABLES[name], rows, name=name, find="", default=default, size=8)


def _usable_cache(info: CacheInfo | None) -> items.Cache:
    """Return the cache itself. Raise `UnknownCache` if this process has not created it."""
    if info is None or info.cache is None:
        raise UnknownCache(
            _("This process has not created the cache, so its items are unavailable. Add the cache to the settings.")
        )
    return info.cache
