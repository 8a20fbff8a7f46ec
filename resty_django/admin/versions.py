"""Optimistic locking in forms: a second editor sees the first one's changes.

The model needs a field `version`, which grows with each save.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import connections, models
from django.utils import timezone, translation
from django.utils.datastructures import MultiValueDict
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from .operations import changed_text

if TYPE_CHECKING:
    _ModelForm = forms.ModelForm[Any]
else:
    _ModelForm = forms.ModelForm


class _VersionField(forms.IntegerField):
    widget = forms.HiddenInput

    def has_changed(self, initial: Any, data: Any) -> bool:
        return False  # not recorded as a change in the history


class VersionedForm(_ModelForm):
    """Form that is invalid if the object was saved since the form was shown; the error lists the differences.

    A second submission is saved, because the user has seen the differences. The template must render `seen_version`.
    A preview sets `previewed`.
    """

    seen_version = _VersionField(required=False)
    previewed = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk is None:
            del self.fields["seen_version"]
        else:
            self.initial["seen_version"] = self.instance.version

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]
        seen_version = self.cleaned_data.get("seen_version")
        if seen_version is None or self.previewed or self.instance.pk is None:
            return
        stored = stored_row(self.instance, lock=True)
        if stored is None:
            self.add_error(None, _("Another user has deleted this object. Nothing was saved."))
        elif stored.version != seen_version:
            self.add_error(None, ValidationError(self._differences(stored, seen_version)))
            data = MultiValueDict[str, object]()
            data.update(self.data)
            data[self.add_prefix("seen_version")] = str(stored.version)
            self.data = data

    def _differences(self, stored: Any, seen_version: int) -> list[str]:
        lines = [
            _(
                "Another user has saved this object since you opened it (version %(seen)s, now %(stored)s). Nothing "
                "was saved. To overwrite those changes, save again."
            )
            % {"seen": seen_version, "stored": stored.version}
        ]
        for name in self.cleaned_data:
            if name in own_fields(stored):
                theirs, ours = getattr(stored, name), getattr(self.instance, name)
                if theirs != ours:
                    values = {"field": self[name].label, "theirs": _shortened(theirs), "ours": _shortened(ours)}
                    lines.append(_("%(field)s: stored “%(theirs)s”, yours “%(ours)s”.") % values)
        return lines


def own_fields(obj: models.Model) -> dict[str, models.Field[Any, Any]]:
    """Return the fields of an object that a form may change."""
    return {
        field.name: field
        for field in obj._meta.concrete_fields
        if field.editable and not field.primary_key and not getattr(field, "auto_now", False)
    }


def changes_of(form: Any) -> list[str]:
    """Return the old and the new value of each field that a valid form changes, in English."""
    with translation.override(None):
        return [
            changed_text(capfirst(field.verbose_name), *map(_local, values))
            for name, field in own_fields(form.instance).items()
            if name in form.fields
            and (values := (form.initial.get(name), field.value_from_object(form.instance)))[0] != values[1]
        ]


def _local(value: Any) -> Any:
    return timezone.localtime(value) if isinstance(value, datetime) and timezone.is_aware(value) else value


def stored_row(obj: Any, *, lock: bool = False) -> Any:
    """Return the object as stored, None if it was deleted. `lock`: lock the row until the transaction ends."""
    alias = obj._state.db
    rows = type(obj)._default_manager.using(alias).filter(pk=obj.pk)
    if lock and connections[alias].in_atomic_block:
        rows = rows.select_for_update()
    return rows.first()


def save_changes(obj: Any, using: str | None = None) -> None:
    """Save only the fields of an existing object that differ from the stored row."""
    stored = stored_row(obj)
    if stored is None:
        obj.save(using=using)
        return
    changed = [name for name, field in own_fields(obj).items() if getattr(obj, name) != getattr(stored, name)]
    if changed:
        obj.save(using=using, update_fields=changed)


def _shortened(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
