"""Admin of shared dictionaries: their figures, keys and values, and the operations on them."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from resty_django.models import SharedDictionary
from resty_django.shdict import NotFound, SharedDictError, shdicts
from resty_django.shdict.facts import facts, facts_of

from .base import ReadOnlyAdmin, object_page, viewer_page
from .formatting import number, unavailable
from .forms import FlushForm, delete_key
from .operations import Operation, OperationResult
from .statistics import DictionaryView, KeyView, find_item, key_of, search, why
from .tables import Column, Row, filter_form, listed_table, listing

FREED_AT_ONCE: Final = 100_000
"""Maximum number of expired items that one click frees."""
TEMPLATES: Final = "admin/resty_django/shareddictionary"
COLUMNS: Final = (
    Column("name", gettext_lazy("Name")),
    Column("engine", gettext_lazy("Engine"), of=lambda row: f"{row.engine}, {row.where}"),
    Column("capacity", gettext_lazy("Capacity"), number=True, of="stats.capacity"),
    Column("free", gettext_lazy("Free space"), number=True, of="stats.free_space"),
    Column("keys", gettext_lazy("Keys"), number=True, of="stats.keys"),
    Column("forcible", gettext_lazy("Forcible evictions"), number=True, of="stats.forcible"),
)


def _delete_key(obj: SharedDictionary, data: dict[str, Any]) -> OperationResult:
    key_text = KeyView.of(data["key"]).text
    if not shdicts[obj.name].delete(data["key"]):
        raise NotFound(_("The key “%(key)s” does not exist.") % {"key": key_text})
    message = format_html(_('Deleted the key <code class="resty-id">{}</code>.'), key_text)
    return OperationResult(f"Deleted the key “{key_text}”.", message)


def _flush_expired(obj: SharedDictionary, data: dict[str, Any]) -> OperationResult:
    freed = shdicts[obj.name].flush_expired(FREED_AT_ONCE)
    is_limited = freed >= FREED_AT_ONCE
    message = ngettext("Freed %(count)s expired item.", "Freed %(count)s expired items.", freed)
    if is_limited:
        message = _("Freed %(count)s expired items. There may be more.")
    entry = f"Freed {freed:,} expired item{'' if freed == 1 else 's'}.{' There may be more.' if is_limited else ''}"
    return OperationResult(entry, message % {"count": number(freed)})


def _flush_all(obj: SharedDictionary, data: dict[str, Any]) -> OperationResult:
    shdicts[obj.name].flush_all()
    return OperationResult("Marked everything in it expired.", _("Marked everything in it expired."))


class SharedDictionaryAdmin(ReadOnlyAdmin[SharedDictionary]):
    refusals: ClassVar = (SharedDictError,)
    object_route = "<path:object_id>"
    operations = (
        delete_key("delete_dictionary_item", _delete_key, TEMPLATES),
        Operation(
            "flush_expired",
            gettext_lazy("Free expired items"),
            "flush_expired_items",
            _flush_expired,
            button=gettext_lazy("Free their memory"),
            template=f"{TEMPLATES}/flush_expired.html",
        ),
        Operation(
            "flush_all",
            gettext_lazy("Empty a dictionary"),
            "flush_dictionary",
            _flush_all,
            form=lambda data, obj: FlushForm(data, obj.name),
            explain=lambda obj: {"figures": DictionaryView(facts_of(obj.name))},
            button=gettext_lazy("Mark everything expired"),
            danger=True,
            template=f"{TEMPLATES}/flush_all.html",
        ),
    )

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> SharedDictionary | None:
        return SharedDictionary(name=object_id) if object_id in shdicts else None

    # --- pages --------------------------------------------------------------------------------------------------------

    @viewer_page
    def changelist_view(self, request: HttpRequest) -> HttpResponse:
        try:
            rows, error = [DictionaryView(each) for each in facts()], ""
        except ImproperlyConfigured as fault:
            rows, error = [], str(fault)
        note = _(
            "A forcible eviction removes an item before it expires, to free space. This is normal for caches, but a "
            "loss for other data."
        )
        dictionaries = listed_table(
            listing(request, COLUMNS, rows),
            self._row,
            caption=str(capfirst(self.opts.verbose_name_plural)),
            export="dictionaries",
            note=note,
        )
        table = None if error else dictionaries
        return self.list_page(request, table, error=error, filter=filter_form(request), live=True)

    def _row(self, figures: DictionaryView) -> Row:
        engine = format_html('{}, <span class="resty-quiet">{}</span>', figures.engine, figures.where)
        cells = {"name": self.link(figures.name), "engine": engine if figures.engine else ""}
        if figures.error:
            return Row(cells | {"engine": format_html("{} {}", cells["engine"], unavailable(figures.error))})
        return Row(cells | {key: getattr(figures, key) for key in ("capacity", "free", "keys", "forcible")})

    @object_page
    def change_view(self, request: HttpRequest, obj: SharedDictionary) -> HttpResponse:
        """Show a dictionary. URL parameters: `key` or `k`, a key or its token; `find`, a text; `count`."""
        context = {
            "title": obj.name,
            "object": obj,
            "figures": DictionaryView(facts_of(obj.name, count="count" in request.GET)),
            "may_view_items": self.may(request, "view_dictionary_items", obj),
            "may_delete": self.may(request, "delete_dictionary_item", obj),
            "may_flush_expired": self.may(request, "flush_expired_items", obj),
            "may_flush_all": self.may(request, "flush_dictionary", obj),
            **self._items(request, obj),
        }
        return self.page(request, f"{TEMPLATES}/dictionary.html", context)

    def _items(self, request: HttpRequest, obj: SharedDictionary) -> dict[str, Any]:
        """Return the requested item or keys as template context."""
        query = request.GET
        key = query.get("key") or key_of(query.get("k", ""))
        if not key and "find" not in query:
            return {}
        if not self.may(request, "view_dictionary_items", obj):
            raise PermissionDenied
        try:
            if key:
                item = find_item(shdicts[obj.name], key)
                return {"key": KeyView.of(key), "typed": query.get("key", ""), "item": item}
            return {"text": query["find"], "search": search(shdicts[obj.name], query["find"])}
        except Exception as error:  # a dictionary that cannot be used, or a value of another program
            return {"key": KeyView.of(key), "text": query.get("find", ""), "fault": why(error)}
