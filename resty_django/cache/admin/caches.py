"""Admin of caches: the list, a cache's page, and its operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, ClassVar, Final
from urllib.parse import urlencode

from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from resty_django.admin.base import ReadOnlyAdmin, object_page, viewer_page
from resty_django.admin.export import query_without
from resty_django.admin.formatting import NONE, date_time, number, unavailable
from resty_django.admin.forms import delete_key
from resty_django.admin.operations import Change, Operation
from resty_django.admin.statistics import Key, key_of, why
from resty_django.admin.tables import (
    Row,
    Table,
    changed,
    filter_form,
    listed_table,
    listing,
    order_of,
    pager,
    table,
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
from .statistics import PERIODS, Figures, dictionary_text, kind_of, options
from .stores import StoreStatus, statuses, troubles
from .tags import TagForm, TagRow, latest_tags

TEMPLATES: Final = "admin/resty_cache/cache"
ROWS: Final = 8
"""Rows per page of a table of a cache's page."""


def _delete_key(obj: Cache, data: dict[str, Any]) -> Change:
    items.delete(_usable_cache(all_caches().get(obj.name)), data["key"])
    text = Key.of(data["key"]).text
    message = format_html(_('Deleted the key <code class="resty-id">{}</code>.'), text)
    return Change(f"Deleted the key “{text}”.", message)


def _invalidate_tag(obj: Cache, data: dict[str, Any]) -> Change:
    items.invalidate_tag(_usable_cache(all_caches().get(obj.name)), data["tag"])
    text = Key.of(data["tag"]).text
    message = format_html(_('Invalidated the tag <code class="resty-id">{}</code>.'), text)
    return Change(f"Invalidated the tag “{text}”.", message)


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


def _purge(obj: Cache, data: dict[str, Any]) -> Change:
    free = bool(data.get("free"))
    items.purge(_usable_cache(all_caches().get(obj.name)), free)
    message = _("Purged the cache and freed its memory.") if free else _("Purged the cache.")
    return Change(f"Purged the cache{' and freed its memory' if free else ''}.", message)


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
        rows = [Figures(cache) for cache in facts().caches]
        note = _(
            "Calls in the last hour, in all processes, by level. Processes flush their counts about once per second, "
            "together with calls that reach the source."
        )
        caches = listed_table(
            listing(request, columns.LIST, rows),
            self._row,
            caption=capfirst(self.opts.verbose_name_plural),
            export="caches",
            note=note,
        )
        return self.list_page(request, caches, notes=troubles(), filter=filter_form(request), live=True)

    def _row(self, figures: Figures) -> Row:
        cells = {"name": self.link(figures.name), "kind": figures.kind}
        if figures.error:
            return Row(cells | {"error": unavailable(figures.error)})
        shares = {level.kind: level.hour_share for level in figures.levels}
        spark = format_html('<span class="resty-spark">{}</span>', figures.spark)
        return Row(cells | {"calls": figures.calls, "hits": figures.hits, **shares, "error": spark})

    @object_page
    def change_view(self, request: HttpRequest, obj: Cache) -> HttpResponse:
        """Return the page of a cache. URL parameters: `key` or `k`, a key or its token; `find`, a key prefix; `period`
        of the charts; `o` and `p`, the order and the page of the keys; `o-missed`, `p-missed` and others, of the other
        tables.
        """
        info = all_caches()[obj.name]
        usable = info.cache is not None
        cache_figures, period = Figures(facts_of(info)), request.GET.get("period", "hour")
        may_view_items = self.may(request, "view_cache_items", obj)
        of_tables = [f"{letter}-{name}" for name in columns.PAGE for letter in "op"]
        stores = statuses(info)
        unfolded = {name[2:] for name in of_tables if name in request.GET}
        if any(store.trouble for store in stores):
            unfolded.add("stores")
        context = {
            "title": obj.name,
            "object": obj,
            "usable": usable,
            "figures": cache_figures,
            "live": not query_without(request, "period", *of_tables),
            "charts": cache_figures.charts(period),
            "periods": [(changed(request, period=name), label, name == period) for name, label in PERIODS.items()],
            "options": options(info),
            "stores": _table(request, "stores", stores, _store_row, _("Stores")),
            "unfolded": unfolded,
            "searched": not {"find", "key", "k"}.isdisjoint(request.GET),
            "may_view_items": may_view_items,
            "may_delete": usable and self.may(request, "delete_cache_item", obj),
            "may_purge": usable and self.may(request, "purge_cache", obj),
            **(self._keys(request, obj, info, cache_figures) if may_view_items else {}),
            **self._items(request, obj, info),
        }
        return self.page(request, f"{TEMPLATES}/cache.html", context)

    def _keys(self, request: HttpRequest, obj: Any, info: CacheInfo, figures: Figures) -> dict[str, Any]:
        """Return the tables of keys and tags, which may be secret."""

        def text(key: Any) -> SafeString:
            code = format_html('<code class="resty-id">{}</code>', key.text)
            return (
                format_html('<a href="?{}#items">{}</a>', urlencode({"k": key.token}), code)
                if key.token and info.cache
                else code
            )

        def missed(key: Any) -> Row:
            return Row({"key": text(key), "callbacks": key.count})

        def slow(key: Any) -> Row:
            cells = {"longest": key.took, "when": date_time(key.when), "callbacks": number(key.times)}
            return Row({"key": text(key), **cells})

        missed_note = _(
            "The keys with the most callbacks in this hour and the previous one. The list has a fixed size, so some "
            "counts are only known as a range. Misses without a callback have no key."
        )
        slow_note = _(
            "The keys with the slowest callbacks of the last two days. The list has a fixed size; callbacks of a key "
            "are counted while it is listed."
        )
        label = _("Keys behind the misses")
        return {
            "missed": _table(request, "missed", figures.missed, missed, label, "-callbacks", missed_note),
            "slow": _table(request, "slow", figures.slow, slow, _("Slowest callbacks"), "-longest", slow_note),
            **self._tags(request, obj, info),
        }

    def _tags(self, request: HttpRequest, obj: Any, info: CacheInfo) -> dict[str, Any]:
        """Return the latest invalidated tags."""
        may_delete = info.cache is not None and self.may(request, "delete_cache_item", obj)
        url = reverse(self.url_name("invalidate_tag"), args=[quote(obj.pk)])

        def row(tag: TagRow) -> Row:
            name = format_html('<code class="resty-id">{}</code>', tag.key.text)
            if may_delete and tag.key.token:
                name = format_html(
                    '{} <a href="{}?{}">{}</a>', name, url, urlencode({"k": tag.key.token}), _("Invalidate")
                )
            return Row({"tag": name, "invalidations": number(tag.times), "last": date_time(tag.when)})

        note = _(
            "The 50 tags with the latest invalidations of the last two days, in all processes. Invalidations of a tag "
            "are counted while it is listed. The history of the cache shows who invalidated tags in the admin."
        )
        try:
            return {"tags": _table(request, "tags", latest_tags(info), row, _("Invalidated tags"), "-last", note)}
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
        prefix = query.get("find", "")
        try:
            cache = _usable_cache(info)
            if key:
                return {"key": Key.of(key), "typed": query.get("key", ""), "item": items.find(cache, key)}
            order = order_of(request, columns.ITEMS)
            matches, unseen = items.search(cache, prefix, reverse=order[1])
            position = pager(request, len(matches), anchor="#items")
            first, count = position.span
            keys = table(
                request,
                columns.ITEMS,
                [_item_row(items.row(cache, match)) for match in matches[first : first + count]],
                caption=_("Keys"),
                empty=_("No keys with this prefix."),
                position=position,
                order=order if order[0] else ("key", False),
            )
            found = ngettext("%(count)s key", "%(count)s keys", len(matches)) % {"count": number(len(matches))}
            return {"text": prefix, "keys": replace(keys, summary=found), "unseen": unseen}
        except Exception as error:  # e.g. a dictionary that cannot be used
            return {"key": Key.of(key), "text": prefix, "fault": why(error)}


def _table(
    request: HttpRequest,
    name: str,
    rows: Iterable[Any],
    row: Callable[[Any], Row],
    caption: str,
    default: str = "",
    note: str = "",
) -> Table | None:
    """Return a page of a table of a cache's page, sorted as the URL says; None if it is empty."""
    listed = listing(request, columns.PAGE[name], rows, name=name, find="", default=default)
    position = pager(request, len(listed), ROWS, f"p-{name}", f"#{name}")
    return listed_table(listed, row, caption=caption, position=position, note=note) if listed else None


def _item_row(item: items.Row) -> Row:
    code = format_html('<code class="resty-id">{}</code>', item.key.text)
    if item.key.token:
        key = format_html('<a href="?{}#items">{}</a>', urlencode({"k": item.key.token}), code)
    else:
        key = format_html('{} <span class="resty-quiet">{}</span>', code, _("(too long for a link)"))
    return Row({"key": key, "life": item.life, "levels": item.levels, "size": item.size})


def _store_row(status: StoreStatus) -> Row:
    cells: dict[str, Any] = {"store": status.store, "uses": status.uses, "waiting": status.waiting}
    trouble = status.trouble
    if trouble is None:
        return Row(cells | {"status": _("In use"), "calls": NONE})
    text = _("since %(since)s: %(error)s") % {"since": date_time(trouble.since), "error": trouble.error}
    state = _("Refuses writes") if status.readable else _("Down")
    alarm = format_html('<span class="resty-alarm">{}</span> {}', state, text)
    return Row(cells | {"status": alarm, "calls": number(trouble.calls)})


def _usable_cache(info: CacheInfo | None) -> items.Cache:
    """Return the cache itself. Raise `UnknownCache` if this process has not created it."""
    if info is None or info.cache is None:
        raise UnknownCache(
            _("This process has not created the cache, so its items are unavailable. Add the cache to the settings.")
        )
    return info.cache
