"""Doing one thing to many jobs: a count before anything is done, steps with their progress, an undo where possible.

The jobs are those chosen by their check boxes, or all of a counted list. Each step is one POST of the same page; what
it needs to go on travels in hidden fields, so that nothing is kept between them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from resty_django.redis import StoreError

from ..job import Job
from ..models import FailureGroup, Named, Queue, Tag, name_of, token
from ..models import Job as JobRow
from . import shown, verbs
from .base import TEMPLATES
from .forms import VerbForm, queues_of
from .rows import state_of
from .sources import Scope, Source, fetched
from .tables import PAGE
from .undo import ERRORS_SHOWN, UndoAdmin

STEP: Final = 500
"""Jobs of a step at most."""
SECONDS: Final = 1.0
"""A step ends after so long."""
MOST_PICKED: Final = 250


@dataclass(slots=True)
class Run:
    """How far it is. `skipped`: jobs that stay in the list; `spread`: jobs that were given a time so far."""

    done: int = 0
    skipped: int = 0
    total: int = 0
    spread: int = 0

    @classmethod
    def of(cls, given: Any) -> Run:
        return cls(**{key: _number(given.get(f"run-{key}")) for key in cls.__slots__})

    @property
    def seen(self) -> int:
        return self.done + self.skipped

    def fields(self) -> list[tuple[str, int]]:
        return [(f"run-{key}", getattr(self, key)) for key in self.__slots__]


class BulkAdmin(UndoAdmin):
    """The pages of it."""

    def bulk_urls(self) -> list[Any]:
        return [self.page_url("bulk", self.bulk_view, "bulk/"), self.page_url("undo", self.undo_view, "undo/")]

    @method_decorator(require_http_methods(["GET", "HEAD", "POST"]))
    def bulk_view(self, request: HttpRequest) -> HttpResponse:
        """In the address the list; in the form `verb`, `pick` or `all`, its argument, and `confirmed`."""
        self.look(request)
        here = shown.list_url("job") + (f"?{request.GET.urlencode()}" if request.GET else "")
        verb = verbs.VERBS.get(request.POST.get("verb", ""))
        picks = [name_of(each) for each in request.POST.getlist("pick")][:MOST_PICKED]
        whole = "all" in request.POST
        if request.method != "POST" or verb is None or not (picks or whole):
            if request.method == "POST":
                self.say(request, _("Choose jobs, and what to do with them."), messages.WARNING)
            return HttpResponseRedirect(here)
        if not self.may(request, verb.permission):
            raise PermissionDenied
        client = self.client()
        source = Source(client, Scope.of(request.GET))
        if whole and not source.counted:
            self.say(request, _("This list is not counted. Choose jobs, or narrow it down."), messages.WARNING)
            return HttpResponseRedirect(here)
        confirmed = "confirmed" in request.POST
        rate = verb.name == "retry"
        queues = queues_of(client) if verb.field == "queue" else []
        form = VerbForm(request.POST if confirmed else None, verb, queues, rate=rate)
        run = Run.of(request.POST)
        if not confirmed or not form.is_valid():
            return self._ask(request, client, verb, form, picks, source if whole else None, here)
        argument = form.cleaned_data.get(verb.field, "") if verb.field else ""
        pace = form.cleaned_data.get("rate")
        if picks and not whole:
            return self._picked(request, client, verb, picks, argument, pace, here)
        run.total = run.total or source.total()
        errors = self._step(client, verb, source, argument, pace, run)
        self._log(request, Scope.of(request.GET), f"{verb.done} {run.done:,} of {shown.jobs(run.total)}.")
        if run.seen < run.total and source.total() > (
            run.skipped if _leaves(verb, source.scope, argument) else run.seen
        ):
            return self._go_on(request, verb, form, run, errors, here)
        said = f"{verb.done} {shown.jobs(run.done)}."
        self.tell(request, said, run.skipped, errors)
        return HttpResponseRedirect(here)

    # --- the pages --------------------------------------------------------------------------------------------------

    def _ask(
        self,
        request: HttpRequest,
        client: Any,
        verb: verbs.Verb,
        form: VerbForm,
        picks: Sequence[str],
        source: Source | None,
        here: str,
    ) -> HttpResponse:
        """How many it would be, before anything is done."""
        now = client.clock()
        if source is not None:
            count = source.total()
            jobs = source.page(0).jobs
            told = _("%(jobs)s: all of this list.") % {"jobs": shown.jobs(count)}
        else:
            jobs, gone = fetched(client, picks)
            count = sum(verb.fits(job, now) for job in jobs)
            told = _("%(count)s of %(chosen)s chosen.") % {"count": count, "chosen": shown.jobs(len(picks))}
            if gone:
                told += " " + _("Gone: %(gone)s.") % {"gone": len(gone)}
        states = Counter(state_of(job, now) for job in jobs)
        unfit = sum(not verb.fits(job, now) for job in jobs)
        among = ", ".join(f"{number} {state}" for state, number in states.most_common())
        facts = [(_("It concerns"), told), (_("Among them") if source is None else _("The first of them"), among)]
        if unfit:
            facts.append((_("Left as they are"), _("%(count)s of these, in another state") % {"count": unfit}))
        context = {
            "title": verb.label,
            "button": verb.label if count else "",
            "form": form,
            "danger": verb.danger,
            "explain": verb.effect if count else _("Nothing would be done."),
            "facts": facts,
            "hidden": [
                ("verb", verb.name),
                ("confirmed", "yes"),
                *((("all", "yes"),) if source is not None else [("pick", token(each)) for each in picks]),
            ],
            "back": here,
            "live": False,
        }
        return self.page(request, f"{TEMPLATES}/action.html", context)  # type: ignore[no-any-return]

    def _go_on(
        self, request: HttpRequest, verb: verbs.Verb, form: VerbForm, run: Run, errors: Sequence[str], here: str
    ) -> HttpResponse:
        """What is done so far; the next POST of this page is the next step."""
        given = [(key, request.POST[key]) for key in (verb.field, "rate") if request.POST.get(key)]
        text = _("%(seen)s of %(jobs)s") % {"seen": shown.number(run.seen), "jobs": shown.jobs(run.total)}
        context = {
            "title": verb.label,
            "button": _("Go on"),
            "danger": verb.danger,
            "explain": " ".join(errors[:ERRORS_SHOWN]),
            "progress": {"text": text, "max": run.total, "value": run.seen},
            "hidden": [("verb", verb.name), ("confirmed", "yes"), ("all", "yes"), *given, *run.fields()],
            "again": True,
            "back": here,
            "live": False,
        }
        return self.page(request, f"{TEMPLATES}/action.html", context)  # type: ignore[no-any-return]

    # --- the work ---------------------------------------------------------------------------------------------------

    def _step(
        self, client: Any, verb: verbs.Verb, source: Source, argument: Any, pace: float | None, run: Run
    ) -> list[str]:
        """Some jobs of the list. Those of a group of failures come oldest first, from its end."""
        end, errors, first = time.monotonic() + SECONDS, [], run.seen
        while run.seen < min(run.total, first + STEP) and time.monotonic() < end:
            start = run.skipped if _leaves(verb, source.scope, argument) else run.seen
            count = min(PAGE, run.total - run.seen)
            try:
                if source.scope.group:
                    left = source.total() - start
                    start, count = max(0, left - count), min(count, left)
                jids = source.jids(start, count) if count > 0 else []
                if not jids:
                    break
                jobs, gone = fetched(client, jids[::-1] if source.scope.group else jids)
            except StoreError as error:  # what is done already is to be logged
                errors.append(str(error))
                break
            told = self._do(client, verb, jobs, argument, pace, run.spread)
            run.done += len(told.done)
            run.spread += len(told.done)
            run.skipped += len(jobs) - len(told.done) + len(gone)
            errors += told.errors
        return list(dict.fromkeys(errors))

    def _do(
        self, client: Any, verb: verbs.Verb, jobs: Sequence[Job], argument: Any, pace: float | None, spread: int
    ) -> verbs.Outcome:
        now = client.clock()
        fitting = [job for job in jobs if verb.fits(job, now)]
        if pace:
            return verbs.apply(client, verb, fitting, lambda place: (spread + place) / pace)
        return verbs.apply(client, verb, fitting, argument)

    def _picked(
        self,
        request: HttpRequest,
        client: Any,
        verb: verbs.Verb,
        picks: Sequence[str],
        argument: Any,
        pace: float | None,
        here: str,
    ) -> HttpResponse:
        jobs, _gone = fetched(client, picks)
        outcome = self._do(client, verb, jobs, argument, pace, 0)
        self.note(request, f"{verb.label} {argument}".strip() + ".", *(JobRow.called(job.jid) for job in outcome.done))
        count = shown.jobs(len(outcome.done))
        self.tell(
            request,
            f"{verb.done} {count}.",
            len(picks) - len(outcome.done),
            outcome.errors,
            verbs.undo_token(outcome, request.user),
        )
        return HttpResponseRedirect(here)

    def _log(self, request: HttpRequest, scope: Scope, text: str) -> None:
        """Under the group, the tag or the queue whose list it was."""
        kinds: tuple[tuple[type[Named], str], ...] = (
            (FailureGroup, scope.group),
            (Tag, scope.tag),
            (Queue, scope.queue),
        )
        for kind, called in kinds:
            if called:
                self.note(request, text, kind.called(called))
                return
        self.note(request, text, JobRow.called(f"all {scope.state} jobs"))


def _leaves(verb: verbs.Verb, scope: Scope, argument: Any) -> bool:
    """Whether jobs go from the list, or to its end, as this is done to them."""
    if verb.name in ("cancel", "move", "retry"):
        return True
    return (verb.name == "timeout" and not scope.tag) or (verb.name == "untag" and argument == scope.tag)


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 12 else 0


__all__ = ["BulkAdmin"]
