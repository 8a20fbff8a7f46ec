"""Erasure of a key from the archive: the arguments, tags, errors and history of the jobs that contain it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

from django.db import router
from django.db.models import Q

from resty_django.erasing import Erased

from .archive.rows import document_of
from .archive.rows import erase as erase_rows
from .models import ArchivedJob

BATCH: Final = 500

KEPT: Final = (
    "Jids and classes of archived jobs, and arguments with the key in another form, such as another ID of the person.",
)


def erase(key: str, dry: bool, dictionaries: Sequence[str] = ()) -> Iterator[Erased]:
    """Erase the data of archived jobs that contain a key; `dry`: only count. Raise `django.db.Error`."""
    rows = ArchivedJob.objects.using(router.db_for_write(ArchivedJob))
    contains = Q(text__contains=key.casefold()) | Q(error_message__icontains=key)
    for name in ("arguments", "tags", "history"):
        contains |= Q(**{f"{name}__icontains": json.dumps(key, ensure_ascii=False)[1:-1]})
    ids = [row.pk for row in rows.filter(contains).iterator(chunk_size=BATCH) if has(row, key)]
    for start in range(0, len(ids) if not dry else 0, BATCH):
        erase_rows(rows.filter(pk__in=ids[start : start + BATCH]))
    yield Erased("archived jobs", len(ids))


def has(row: ArchivedJob, key: str) -> bool:
    """Return whether a row contains a key: for a number as a whole value, for any other key as whole words.

    Jobs are full of numbers, so only jobs with the argument or tag 7, or with a tag such as `customer:7`, contain 7.
    """
    job = document_of(row)
    values = [value for _path, value in job.values]
    if key.isdecimal():
        return key in values or any(tag == key or re.search(rf"[:=-]{key}\Z", tag) for tag in job.tags)
    pattern = re.compile(rf"(?<!\w){re.escape(key)}(?!\w)", re.IGNORECASE)
    cut = row.arguments if row.arguments_are == ArchivedJob.Arguments.CUT else ""
    texts = (row.txid, *job.tags, *values, row.error_message, row.history, cut)
    return any(pattern.search(text) for text in texts)
