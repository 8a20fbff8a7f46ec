"""The searchable parts of a job: its texts, their words, and the terms under which the index lists the job.

A job has one term for its class, another one if it has failed, one for its txid, and one for each word of its
arguments, tags, error and jid, with the path where the word is. Arguments come here redacted, so that the index
contains no hidden value.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeGuard

from ..job_classes import Runnable, find, has_source
from ..redaction import MARKS, redacted_arguments
from .query import Term, age_fits

MAX_NAME_WORDS: Final = 4
"""Maximum number of words of the tags, and of the jid."""
MAX_WORD_LENGTH: Final = 40
"""Maximum characters of a word in the index; longer ones are cut."""
MAX_TEXT_LENGTH: Final = 2000
"""Maximum characters of a text that a search compares."""
CLASS, FAILED_CLASS = "c:", "f:"
"""Beginnings of the terms for a class: of any job, and of a failed one."""
TXID: Final = "t:"
ERROR, TAG, JID = "!", "#", "@"
"""Paths of words that are not in arguments."""

_CONTROL: Final = re.compile("[\x00-\x1f\ud800-\udfff]")
_NOT_INDEXED: Final = frozenset(("true", "false", "null"))


class Pattern(NamedTuple):
    """A pattern of terms, for the command `index.find`: their beginning, and the path that they have or are below."""

    prefix: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """The texts of a job. `values`: paths and texts of its redacted arguments."""

    jid: str
    klass: str
    txid: str = ""
    tags: Sequence[str] = ()
    values: Sequence[tuple[str, str]] = ()
    error: str = ""
    """The failure group and the last line of the message, if the job has failed."""
    failed: bool = False
    """Only for the terms of the index."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """The text in which a term was found, and where: `start` and `end` in `text`. `label`: what the text is."""

    label: str
    text: str
    start: int
    end: int


def document(jid: str, klass: str, data: object, **fields: Any) -> Document:
    """Return the document of a job with these arguments, which are redacted here."""
    values = tuple((path, text) for path, text in argument_texts(klass, data) if text not in MARKS)
    return Document(jid, klass, values=values, **fields)


def error_text(failure: object) -> str:
    """Return what the search sees of a failure: its group and the last line of its message."""
    if not isinstance(failure, dict):
        return ""
    lines = str(failure.get("message", "")).strip().splitlines()
    return f"{failure.get('group', '')}: {lines[-1] if lines else ''}"[:MAX_TEXT_LENGTH]


def argument_texts(klass: str, data: object) -> Iterator[tuple[str, str]]:
    """Yield the paths and texts of a job's redacted arguments, with a mark for each hidden one."""
    shown = redacted_arguments(klass, data)
    if _is_task_data(data) and isinstance(shown, dict):
        names, position = _names_of(klass), int(has_source(data))
        args, kwargs = shown.get("args"), shown.get("kwargs")
        positional = {
            names[position + n] if position + n < len(names) else str(position + n): value
            for n, value in enumerate(args if isinstance(args, list) else filter(None, [args]))
        }
        shown = {**positional, **(kwargs if isinstance(kwargs, dict) else {})}
    yield from itertools.islice(_leaves(shown, "", 0), 500)


def _is_task_data(data: object) -> TypeGuard[dict[str, object]]:
    return isinstance(data, dict) and isinstance(data.get("args"), list) and isinstance(data.get("kwargs"), dict)


def _names_of(klass: str) -> Sequence[str]:
    try:
        target = find(klass)
    except Exception:  # importing its module may raise anything
        return ()
    return target.parameter_names if isinstance(target, Runnable) else ()


def _leaves(value: object, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if depth > 20:
        return
    if isinstance(value, dict):
        for name, child in value.items():
            label = str(name).casefold()
            yield from _leaves(child, f"{path}.{label}" if path else label, depth + 1)
    elif isinstance(value, list | tuple):
        for child in value:
            yield from _leaves(child, path, depth + 1)
    elif isinstance(value, bool) or value is None:
        yield path, {True: "true", False: "false", None: "null"}[value]
    else:
        yield path, str(value)[:MAX_TEXT_LENGTH]


# --- terms of the index ---


def index_terms(job: Document) -> list[str]:
    """Return the terms of a job in the order of their bytes."""
    terms = {f"{CLASS}{_name(job.klass)}"}
    if job.failed:
        terms.add(f"{FAILED_CLASS}{_name(job.klass)}")
    if job.txid:
        terms.add(f"{TXID}{_name(job.txid)}")
    by_value = [(path, words(text)) for path, text in job.values if text not in _NOT_INDEXED]
    argument_words = dict.fromkeys((word, path) for path, found in by_value for word in found[:6])
    terms.update(_word_term(word, path) for word, path in list(argument_words)[:16])
    terms.update(_word_terms(job.error, ERROR, 10))
    terms.update(_word_terms(" ".join(job.tags), TAG, MAX_NAME_WORDS))
    if not re.fullmatch(r"[0-9a-f]{32}", job.jid):  # nobody searches for a word of a random one
        terms.update(_word_terms(job.jid, JID, MAX_NAME_WORDS))
    return sorted(terms, key=str.encode)


def words(text: str) -> list[str]:
    """Return the words of a text, in lower case: runs of letters and digits."""
    return [word[:MAX_WORD_LENGTH] for word in re.findall(r"[^\W_]+", _CONTROL.sub(" ", text).casefold())]


def _word_terms(text: str, path: str, limit: int) -> set[str]:
    return {_word_term(word, path) for word in list(dict.fromkeys(words(text)))[:limit]}


def _word_term(word: str, path: str) -> str:
    return f"w:{word}\x1f{_path(path)}"


def _path(path: str) -> str:
    return _CONTROL.sub("\ufffd", path)[:60]


def _name(name: str) -> str:
    return _CONTROL.sub("\ufffd", name)[:200]


# --- patterns of a query ---


def patterns(term: Term, classes: Iterable[str], *, failed: bool = False) -> list[list[Pattern]]:
    """Return lists of patterns: a job that matches the term has a term of the index for one pattern of each list.

    No lists: the index does not contain such words. `classes`: the names of classes in the index. `failed`: only failed
    jobs match.
    """
    kind = FAILED_CLASS if failed else CLASS
    if term.field == "class":
        return [_class_patterns(kind, term.value, classes, term.quoted) or [Pattern(f"{kind}{_name(term.value)}\0")]]
    if term.field == "txid":
        return [[Pattern(f"{TXID}{_name(term.value)}\0")]]
    if term.field not in ("args", "error", "") or term.value.casefold() in _NOT_INDEXED:
        return []
    path = {"args": _path(term.path), "error": ERROR}.get(term.field, "")
    others: list[Pattern] = []
    if not term.field and not re.search(r"\s", term.value):
        others = [*_class_patterns(kind, term.value, classes), Pattern(f"{TXID}{_name(term.value)}\0")]
    found = words(term.value)
    lists: list[list[Pattern]] = []
    for number, word in enumerate(found):
        whole = term.quoted or word.isdecimal() or number < len(found) - 1
        # a word that was cut is a beginning
        prefix = f"w:{word}\x1f{path}" if whole and len(word) < MAX_WORD_LENGTH else f"w:{word}"
        lists.append([Pattern(prefix, path), *others])
    return lists


def _class_patterns(kind: str, value: str, classes: Iterable[str], exact: bool = False) -> list[Pattern]:
    name = _name(value)
    names = sorted(classes)
    if exact or name in names:
        return [Pattern(f"{kind}{name}\0")]
    folded = name.casefold()
    return [Pattern(f"{kind}{klass}\0") for klass in names if folded in klass.casefold()][:20]


# --- matching ---


def find_term(term: Term, job: Document, age: float, inside: bool = False) -> Fragment | None:
    """Return where a job matches a term, or None.

    `age`: of the job, in seconds. `inside`: also in the middle of words.
    """
    if term.field == "age":
        return Fragment("", "", 0, 0) if age_fits(term.value, age) else None
    for label, text in _texts(term, job):
        if term.field == "txid" or (term.field == "class" and term.quoted) or term.field == "tag":
            span = (0, len(text)) if text.casefold() == term.value.casefold() else None
        else:
            span = _find(term, text, inside or label == "class")
        if span:
            return Fragment(label, text, *span)
    return None


def _texts(term: Term, job: Document) -> Iterator[tuple[str, str]]:
    """Yield the texts that a term is compared with, with what each is."""
    everything = not term.field
    if everything or term.field == "args":
        for path, text in job.values:
            if not term.path or path == term.path or path.startswith(f"{term.path}."):
                yield f"args.{path}" if path else "args", text
    if (everything or term.field == "error") and job.error:
        yield "error", job.error
    if everything or term.field == "class":
        yield "class", job.klass
    if (everything or term.field == "txid") and job.txid:
        yield "txid", job.txid
    if everything or term.field == "tag":
        for tag in job.tags:
            yield "tag", tag
    if everything:
        yield "jid", job.jid


def _find(term: Term, text: str, inside: bool) -> tuple[int, int] | None:
    pattern = re.escape(term.value.strip())
    if not inside:
        pattern = rf"(?<![^\W_]){pattern}" if re.match(r"[^\W_]", term.value) else pattern
        if (term.quoted or term.value.isdecimal()) and re.search(r"[^\W_]$", term.value):
            pattern += r"(?![^\W_])"
    match = re.search(pattern, text, re.IGNORECASE)
    return match.span() if match else None


def match_all(terms: Collection[Term], job: Document, age: float, inside: bool = False) -> list[Fragment] | None:
    """Return where a job matches each term, or None if it does not match all."""
    fragments = []
    for term in terms:
        fragment = find_term(term, job, age, inside)
        if fragment is None:
            return None
        if fragment.text:
            fragments.append(fragment)
    return fragments
