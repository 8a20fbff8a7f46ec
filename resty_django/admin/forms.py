"""Forms for the pages of shared dictionaries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.http import QueryDict
from django.utils.translation import gettext_lazy

from .operations import Operation, OperationResult
from .statistics import KeyView, key_of


class DeleteKeyForm(forms.Form):
    """Form for a key, which the URL names by its token, or the user types."""

    key = forms.CharField(
        label=gettext_lazy("Key"), strip=False, help_text=gettext_lazy("The complete key. Case and spaces matter.")
    )

    def __init__(self, data: QueryDict | None, token: str) -> None:
        super().__init__(data)
        self.url_key = key_of(token)
        if self.url_key:
            del self.fields["key"]

    def clean(self) -> dict[str, Any]:
        return {"key": self.url_key} if self.url_key else self.cleaned_data


def delete_key(
    permission: str, run: Callable[[Any, dict[str, Any]], OperationResult], templates: str
) -> Operation[Any]:
    """Return the operation that deletes a key. `run`: as in `Operation`. `templates`: the folder of its page."""
    return Operation(
        "delete_key",
        gettext_lazy("Delete a key"),
        permission,
        run,
        form=lambda data, obj, token: DeleteKeyForm(data, token),
        explain=lambda obj, token: {"key": KeyView.of(key_of(token))},
        keyed=True,
        button=gettext_lazy("Delete"),
        danger=True,
        template=f"{templates}/delete_key.html",
    )


class FlushForm(forms.Form):
    """Form that asks for the dictionary's name as a confirmation."""

    confirmation = forms.CharField(strip=False, widget=forms.TextInput(attrs={"autocomplete": "off"}))

    label = gettext_lazy("Type “%(name)s” to empty it")
    mismatch = gettext_lazy("This is not the name of the dictionary.")

    def __init__(self, data: QueryDict | None, name: str) -> None:
        super().__init__(data)
        self.name = name
        self.fields["confirmation"].label = self.label % {"name": name}

    def clean_confirmation(self) -> str:
        if self.cleaned_data["confirmation"] != self.name:
            raise ValidationError(self.mismatch)
        return self.name
