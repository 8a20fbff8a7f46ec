"""Forms of the job queue's pages."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict
from django.utils.translation import gettext_lazy as _

from resty_django.admin.operations import UserForm
from resty_django.database.history import username
from resty_django.text import printable

from ..clients.default import default_client
from ..clients.job import Job
from ..models import name_of, token
from .formatting import name
from .redis_reads import queue_names


class QueueField(forms.ChoiceField):
    """A choice of a queue; its value is the name."""

    def __init__(self, queues: list[str]) -> None:
        super().__init__(label=_("Queue"), choices=[(token(queue), name(queue)) for queue in queues])

    def clean(self, value: object) -> Any:
        return name_of(super().clean(value))


class PriorityField(forms.FloatField):
    """A number; its value is an `int` if it has no fraction."""

    def clean(self, value: object) -> Any:
        priority = super().clean(value)
        return int(priority) if priority is not None and priority == int(priority) else priority


class OperationForm(forms.Form):
    """Form for the argument of an operation on a job, or on several jobs (`job` is None)."""

    def __init__(self, operation: str, field: str, data: QueryDict | None, job: Job | None) -> None:
        super().__init__(data)
        self.operation = operation
        if field == "queue":
            self.fields["queue"] = QueueField(queue_names(default_client()))
        elif field == "priority":
            self.fields["priority"] = PriorityField(
                label=_("Priority"),
                initial=None if job is None else f"{job.priority:g}",
                help_text=_("Jobs with higher numbers run first. Common values: 25, 0, -25."),
            )
        elif field == "tag":
            self.fields["tag"] = forms.CharField(label=_("Tag"), max_length=1000, strip=False)

    def clean_tag(self) -> str:
        """Return the tag. A tag to remove is sent as a token, since it may be any bytes."""
        tag: str = self.cleaned_data["tag"]
        return name_of(tag) if self.operation == "untag" else tag.strip()


class JsonField(forms.CharField):
    """JSON in a text area; its value is decoded."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            widget=forms.Textarea(attrs={"rows": 12, "class": "resty-source", "spellcheck": "false"}), **options
        )

    def clean(self, value: object) -> Any:
        try:
            return json.loads(super().clean(value))
        except (ValueError, RecursionError) as error:
            raise ValidationError(_("This is not JSON: %(error)s."), params={"error": str(error)}) from None


class JobForm(forms.Form):
    """Form for a new job."""

    queue = forms.CharField()
    arguments = JsonField(label=_("Arguments"))
    priority = PriorityField(label=_("Priority"))
    retries = forms.IntegerField(label=_("Retries"), min_value=0, max_value=1_000_000)
    delay = forms.FloatField(label=_("Delay"), min_value=0, initial=0, help_text=_("Seconds before the job can run."))
    tags = forms.CharField(label=_("Tags"), required=False, help_text=_("Comma-separated."))

    def __init__(
        self, data: QueryDict | None, queues: list[str], initial: dict[str, object], arguments_help: str
    ) -> None:
        super().__init__(data, initial=initial)
        self.fields["queue"] = QueueField(queues)
        self.fields["arguments"].help_text = arguments_help

    def clean_tags(self) -> list[str]:
        return [tag.strip() for tag in self.cleaned_data["tags"].split(",") if tag.strip()]


class TaskForm(forms.Form):
    """Form to choose a task, in the URL."""

    def __init__(self, data: QueryDict | None, classes: list[str], **options: Any) -> None:
        super().__init__(data, **options)
        self.fields["task"] = forms.ChoiceField(label=_("Task"), choices=[(klass, name(klass)) for klass in classes])


class SeenForm(forms.Form):
    """A form that is invalid if the object was changed after the form was shown; it then shows the differences.

    When submitted again, it is valid, since the user has seen the differences. `initial`: the current values. Data
    without `seen`, such as data from a script, are not checked.
    """

    seen = forms.CharField(widget=forms.HiddenInput, required=False, max_length=64)

    def __init__(self, data: QueryDict | None, initial: dict[str, object]) -> None:
        self._present = hashlib.sha256(json.dumps(initial, sort_keys=True, default=str).encode()).hexdigest()[:16]
        super().__init__(data, initial={**initial, "seen": self._present})

    def clean(self) -> dict[str, object]:
        cleaned = super().clean() or {}
        seen = cleaned.pop("seen", "")
        if seen and seen != self._present and (differences := self._differences(cleaned)):
            message = _(
                "This was changed since you opened it, so nothing was saved. To overwrite those changes with your "
                "values, save again."
            )
            self.add_error(None, ValidationError([message, *differences]))
            data = MultiValueDict[str, object]()
            data.update(self.data)
            data[self.add_prefix("seen")] = self._present
            self.data = data
        return cleaned

    def _differences(self, cleaned: dict[str, object]) -> list[str]:
        lines = []
        for field in self.changed_data:
            theirs, ours = str(self.initial[field]), str(self.data.get(self.add_prefix(field), ""))
            if field != "seen" and theirs != ours and cleaned.get(field) != self.initial[field]:
                shown = {"theirs": printable(theirs, 80), "ours": printable(ours, 80)}
                lines.append(
                    _("%(label)s: the stored value is “%(theirs)s”, yours is “%(ours)s”.")
                    % {"label": self[field].label, **shown}
                )
        return lines


class RecurringForm(SeenForm):
    """Form for the template of a recurring job."""

    queue = forms.CharField()
    interval = forms.FloatField(label=_("Interval"), min_value=0.001, help_text=_("Seconds between two jobs."))
    priority = PriorityField(label=_("Priority"))
    retries = forms.IntegerField(label=_("Retries"), min_value=0, max_value=1_000_000)
    backlog = forms.IntegerField(
        label=_("Backlog"), min_value=0, help_text=_("Number of overdue jobs to create besides the latest; 0: all.")
    )
    arguments = JsonField(label=_("Arguments"))

    def __init__(
        self, data: QueryDict | None, queues: list[str], initial: dict[str, object], arguments_help: str | None
    ) -> None:
        """`arguments_help`: the help text of the arguments; None: without arguments."""
        if arguments_help is None:
            initial = {name: value for name, value in initial.items() if name != "arguments"}
        super().__init__(data, initial)
        self.fields["queue"] = QueueField(queues)
        self.fields["arguments"].help_text = arguments_help or ""
        if arguments_help is None:
            del self.fields["arguments"]


class PaceForm(forms.Form):
    rate = forms.FloatField(label=_("Jobs per second"), min_value=0.01, max_value=500)


class PauseForm(UserForm):
    reason = forms.CharField(
        label=_("Reason"), required=False, max_length=200, help_text=_("Shown next to the queue while it is paused.")
    )
    stop_jobs = forms.BooleanField(label=_("Also take running jobs from their workers"), required=False, initial=False)

    def clean(self) -> dict[str, object]:
        """Add the name of the user who pauses as `by`."""
        return {**self.cleaned_data, "by": username(self.user)}


class NameForm(forms.Form):
    """Filter for a list of names."""

    name = forms.CharField(label=_("Name contains"), required=False)
