"""The filter of a list of jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from ...clients.job import Job
from ...models import name_of
from ...search.query import Term, first, parse
from ...search.terms import Fragment, match_all
from .search import age_of, document_of, valued


@dataclass(frozen=True, slots=True)
class JobFilter:
    """The filter of a list.

    `terms`: the terms of the search text. `inside`: whether they also match the middle of words, which the index does
    not support. Empty fields do not filter.
    """

    state: str = ""
    queue: str = ""
    klass: str = ""
    tag: str = ""
    group: str = ""
    worker: str = ""
    tracked: bool = False
    terms: tuple[Term, ...] = ()
    inside: bool = False

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> JobFilter:
        """Return the filter of a URL query, in which names are tokens. Raise `QueryError` for an invalid search text.

        Fields of the search text take precedence over parameters of the same name.
        """
        names = {key: name_of(query.get(key, "")) for key in ("queue", "tag", "group", "worker")}
        terms = parse(query.get("q", "").strip())
        for name in ("queue", "tag"):
            names[name] = first(terms, name) or names[name]
        kept = [term for term in terms if term.field not in ("state", "queue")]
        tag_terms = [term for term in kept if term.field == "tag"]
        return cls(
            state=first(terms, "state") or query.get("state", ""),
            klass=query.get("klass", "").strip(),
            tracked="tracked" in query,
            terms=tuple(term for term in kept if term not in tag_terms[:1]),
            inside=bool(kept) and "inside" in query,
            **names,
        )

    def search_text(self, text: str) -> str:
        """Return `text`, which a user searched for, after the other fields of the filter that a search can name."""
        fields = {"state": self.state, "queue": self.queue, "class": self.klass, "tag": self.tag}
        others = [(name, value) for name, value in fields.items() if not first(parse(text), name)]
        parts = chain.from_iterable(valued(name, [value], exact=name == "class") for name, value in others)
        return " ".join([*parts, text]).strip()

    def only(self, *names: str) -> bool:
        """Return whether no fields other than `names` are set."""
        return all(not getattr(self, key) for key in self.__slots__ if key not in names)

    def matches(self, job: Job, now: float) -> bool:
        if self.state == "stalled":
            state_fits = job.state == "stalled" or (job.state == "running" and job.expires_at <= now)
        else:
            state_fits = not self.state or job.state == self.state
        if self.state == "running":
            state_fits = state_fits and job.expires_at > now
        return (
            state_fits
            and (not self.queue or job.queue_name == self.queue)
            and (not self.klass or job.klass == self.klass)
            and (not self.tag or self.tag in job.tags)
            and (not self.worker or job.worker_name == self.worker)
            and (not self.group or job.failure.get("group") == self.group)
            and (not self.tracked or job.tracked)
        )

    def fragments(self, job: Job, now: float) -> list[Fragment] | None:
        """Return where the job matches the terms, or None if it does not match the filter."""
        if not self.matches(job, now):
            return None
        return match_all(self.terms, document_of(job), age_of(job, now), self.inside) if self.terms else []
