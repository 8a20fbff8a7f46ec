"""The admin of caches: the list, the page of one, and what operators do to it."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from resty_django.admin.base import ShownAdmin
from resty_django.admin.figures import Key, key_of, why
from resty_django.admin.forms import DeleteForm
from resty_django.shdict import SharedDictError

from ..errors import CacheError, UnknownCache
from ..known import Known, known
from ..mlcache import MLCache
from ..models import Cache
from . import items
from .facts import figures, kind_of, options, place
from .forms import PurgeForm

TEMPLATES: Final = "admin/resty_cache/cache"


class CacheAdmin(ShownAdmin[Cache]):
    refusals: ClassVar = (CacheError, SharedDictError)
    object_route = "<path:object_id>"

    class Media:
        css: ClassVar = {"all": ["resty_cache/admin.css"]}

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Cache | None:
        return Cache(name=object_id) if object_id in known() else None

    def get_urls(self) -> list[URLPattern]:
        return [
            self.page_url("changelist", self.changelist_view, ""),
            self.page_url("delete_key", self.delete_key_view),
            self.page_url("purge", self.purge_view),
            self.page_url("history", self.history_view),
            self.page_url("change", self.change_view),
        ]

    # --- looking ----------------------------------------------------------------------------------------------------

    @method_decorator(require_safe)
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        rows = [figures(one) for one in known().values()]
        context = {"title": capfirst(self.opts.verbose_name_plural), "rows": rows}
        return self.page(request, f"{TEMPLATES}/list.html", context)

    @method_decorator(require_safe)
    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """The page of one cache. In the address: `key` or `k`, a key or its token; `find` and `page`, the beginning of
        keys and the number of their page."""
        name = unquote(object_id)
        one = known().get(name)
        obj = None if one is None else Cache(name=name)
        if not self.has_view_or_change_permission(request, obj):
            raise PermissionDenied
        if one is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, name)  # type: ignore[attr-defined, no-any-return]
        here = one.cache is not None
        context = {
            "title": name,
            "object": obj,
            "here": here,
            "figures": figures(one),
            "options": options(one),
            "may_view_items": self.may(request, "view_cache_items", obj),
            "may_delete": here and self.may(request, "delete_cache_item", obj),
            "may_purge": here and self.may(request, "purge_cache", obj),
            **self._items(request, obj, one),
        }
        return self.page(request, f"{TEMPLATES}/cache.html", context)

    def _items(self, request: HttpRequest, obj: Any, one: Known) -> dict[str, Any]:
        """The item or the keys that were asked for."""
        asked = request.GET
        key = asked.get("key") or key_of(asked.get("k", ""))
        if not key and "find" not in asked:
            return {}
        if not self.may(request, "view_cache_items", obj):
            raise PermissionDenied
        begin, page = asked.get("find", ""), asked.get("page", "")
        try:
            if key:
                return {"key": Key.of(key), "typed": asked.get("key", ""), "found": items.find(_here(one), key)}
            return {"text": begin, "listed": items.search(_here(one), begin, int(page) if page.isdecimal() else 1)}
        except Exception as error:  # a dictionary that cannot be used
            return {"key": Key.of(key), "text": begin, "fault": why(error)}

    # --- doing ------------------------------------------------------------------------------------------------------

    def delete_key_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        token = request.GET.get("k", "")
        return self.act(
            request,
            object_id,
            permission="delete_cache_item",
            form=lambda data, obj: DeleteForm(data, token),
            title=_("Delete a key"),
            button=_("Delete"),
            perform=self._delete_key,
            explain=lambda obj: {"key": Key.of(key_of(token))},
            template=f"{TEMPLATES}/delete_key.html",
        )

    def _delete_key(self, request: HttpRequest, obj: Cache, given: dict[str, Any]) -> str:
        items.delete(_here(known().get(obj.name)), given["key"])
        shown = Key.of(given["key"]).text
        self.log_change(request, obj, f"Deleted the key “{shown}”.")
        return format_html('Deleted the key <code class="resty-id">{}</code>', shown)

    def purge_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self.act(
            request,
            object_id,
            permission="purge_cache",
            form=lambda data, obj: PurgeForm(data, obj.name, isinstance(_here(known().get(obj.name)), MLCache)),
            title=_("Purge a cache"),
            button=_("Forget everything"),
            perform=self._purge,
            explain=self._lost,
            template=f"{TEMPLATES}/purge.html",
        )

    def _lost(self, obj: Cache) -> dict[str, Any]:
        """What a purge takes with it: dictionaries, caches in them, and the figures where they are there too."""
        everything = known()
        one = everything[obj.name]
        mine = set(items.dictionaries_of(_here(one)))
        others = [
            f"{name} ({kind_of(other)})"
            for name, other in everything.items()
            if name != obj.name and other.cache is not None and mine & set(items.dictionaries_of(other.cache))
        ]
        counted = one.counter is not None and one.counter.dictionary in mine
        return {"places": [place(each) for each in mine], "others": others, "counts_go": counted}

    def _purge(self, request: HttpRequest, obj: Cache, given: dict[str, Any]) -> str:
        free = bool(given.get("free"))
        items.purge(_here(known().get(obj.name)), free)
        said = "Purged the cache, and freed its memory." if free else "Purged the cache."
        self.log_change(request, obj, said)
        return said


def _here(one: Known | None) -> items.Cache:
    """Raises `UnknownCache` where this process has not made the cache."""
    if one is None or one.cache is None:
        raise UnknownCache(
            "this process has not made the cache, and so cannot look into it. Name it in the settings of the site."
        )
    return one.cache
