"""The forms of the pages of the job queue."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from ..models import name_of, token
from ..redact import HIDDEN
from .shown import STATES, name
from .sources import plain
from .verbs import Verb


def queue_field(queues: list[str], **options: Any) -> forms.Field:
    """A queue that is there."""
    choices = [(token(each), name(each)) for each in queues]
    return forms.ChoiceField(label=_("Queue"), choices=choices, **options)


def queues_of(client: Any) -> list[str]:
    return list(plain(client, "ZRANGE", "queues", 0, -1))


class PriorityField(forms.FloatField):
    """A number, whole where it is one."""

    def clean(self, value: Any) -> Any:
        found = super().clean(value)
        return int(found) if found is not None and found == int(found) else found


class VerbForm(forms.Form):
    """The argument of a verb, if it has one."""

    def __init__(self, data: Any, verb: Verb, queues: list[str], *, rate: bool = False, initial: Any = None) -> None:
        super().__init__(data, initial=initial)
        self.verb, field = verb, verb.field
        if field == "queue":
            self.fields["queue"] = queue_field(queues)
        elif field == "priority":
            self.fields["priority"] = PriorityField(
                label=_("Priority"), help_text=_("Higher ones come first; usual are 25, 0 and -25.")
            )
        elif field == "tag":
            self.fields["tag"] = forms.CharField(label=_("Tag"), max_length=1000, strip=False)
        if rate:
            self.fields["rate"] = forms.FloatField(
                label=_("Jobs a second"),
                required=False,
                min_value=0.001,
                max_value=100_000,
                help_text=_("The jobs are scheduled one after the other at this rate. Empty: all at once."),
            )

    def clean_queue(self) -> str:
        return name_of(self.cleaned_data["queue"])

    def clean_tag(self) -> str:
        """A tag to remove is one of the page, which may be any bytes."""
        tag: str = self.cleaned_data["tag"]
        return name_of(tag) if self.verb.name == "untag" else tag.strip()


class JsonField(forms.CharField):
    """JSON in a text area."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            widget=forms.Textarea(attrs={"rows": 12, "class": "resty-source", "spellcheck": "false"}), **options
        )

    def clean(self, value: Any) -> Any:
        try:
            return json.loads(super().clean(value))
        except (ValueError, RecursionError) as error:
            raise ValidationError(_("This is not JSON: %(error)s"), params={"error": str(error)}) from None


class CloneForm(forms.Form):
    """A new job made of another one."""

    queue = forms.CharField()
    arguments = JsonField(
        label=_("Arguments"),
        help_text=_("JSON. What is %(hidden)s keeps its value.") % {"hidden": HIDDEN},
    )
    priority = PriorityField(label=_("Priority"))
    retries = forms.IntegerField(label=_("Retries"), min_value=0, max_value=1_000_000)
    delay = forms.FloatField(label=_("Delay"), min_value=0, initial=0, help_text=_("Seconds until it waits."))
    tags = forms.CharField(label=_("Tags"), required=False, help_text=_("With commas between them."))

    def __init__(self, data: Any, queues: list[str], initial: dict[str, Any]) -> None:
        super().__init__(data, initial=initial)
        self.fields["queue"] = queue_field(queues)

    def clean_queue(self) -> str:
        return name_of(self.cleaned_data["queue"])

    def clean_tags(self) -> list[str]:
        return [each.strip() for each in self.cleaned_data["tags"].split(",") if each.strip()]


class RecurringForm(forms.Form):
    """The template of jobs to come."""

    queue = forms.CharField()
    interval = forms.FloatField(label=_("Interval"), min_value=0.001, help_text=_("Seconds between two jobs."))
    priority = PriorityField(label=_("Priority"))
    retries = forms.IntegerField(label=_("Retries"), min_value=0, max_value=1_000_000)
    backlog = forms.IntegerField(
        label=_("Backlog"), min_value=0, help_text=_("How many late jobs are made besides the latest; 0: all of them.")
    )
    arguments = JsonField(
        label=_("Arguments"), help_text=_("JSON. What is %(hidden)s keeps its value.") % {"hidden": HIDDEN}
    )

    def __init__(self, data: Any, queues: list[str], initial: dict[str, Any]) -> None:
        super().__init__(data, initial=initial)
        self.fields["queue"] = queue_field(queues)

    def clean_queue(self) -> str:
        return name_of(self.cleaned_data["queue"])


class PauseForm(forms.Form):
    reason = forms.CharField(
        label=_("Reason"), required=False, max_length=200, help_text=_("Shown beside the queue until it goes on.")
    )
    stop_jobs = forms.BooleanField(
        label=_("Take the running jobs from their workers too"), required=False, initial=False
    )


class NameForm(forms.Form):
    """What a list is narrowed to, where it has names alone."""

    name = forms.CharField(label=_("Name contains"), required=False)


class FilterForm(forms.Form):
    """What a list of jobs is narrowed to, in the address."""

    state = forms.ChoiceField(
        label=_("State"), required=False, choices=[("", _("all")), *((each, each) for each in STATES)]
    )
    queue = forms.ChoiceField(label=_("Queue"), required=False)
    klass = forms.CharField(label=_("Class"), required=False)
    tag = forms.CharField(label=_("Tag"), required=False)
    tracked = forms.BooleanField(label=_("Tracked"), required=False)

    def __init__(self, data: Any, queues: list[str]) -> None:
        super().__init__(data)
        choices = [("", _("all")), *((token(each), name(each)) for each in queues)]
        self.fields["queue"] = forms.ChoiceField(label=_("Queue"), required=False, choices=choices)


__all__ = [
    "CloneForm",
    "FilterForm",
    "NameForm",
    "PauseForm",
    "RecurringForm",
    "VerbForm",
    "queues_of",
]
