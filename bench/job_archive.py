"""The archive of finished jobs: rows written per second, and how long searches of a full archive take.

    python bench/job_archive.py --rows 1000000

Jobs are completed on an embedded server and archived by a writer without pauses; then SQLite is filled. Pages are
requested with Django's test client, after one request that warms up. Times are the medians of five requests: by the
clock, and the time that this process had a processor.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

SENT = 5_000
"""Jobs that the writer copies from the server."""
SEARCHES = (
    ("", ""),
    ("state:complete", "queue and state are columns with indexes"),
    ("state:failed", ""),
    ("class:shop.tasks.render_9", ""),
    ("class:render", "ten classes"),
    ("queue:mail age:>90d", ""),
    ("queue:mail state:failed", ""),
    ("txid:t0000500000", ""),
    ("tag:customer-4711", "words, from here on"),
    ("args.customer.id:471100", ""),
    ("args.customer.name:meyer", "many results"),
    ("error:zip_code", ""),
    ("no-such-word", "no result"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help="Rows of the archive.")
    options = parser.parse_args()
    import sys

    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests import servers

    with tempfile.TemporaryDirectory() as folder, servers.one() as server:
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "tests.integration.qless.worker.site_settings",
            "RESTY_TEST_DB": os.environ.get("RESTY_TEST_DB", "sqlite"),
            "RESTY_DB_NAME": os.environ.get("RESTY_DB_NAME", str(Path(folder) / "archive.sqlite3")),
            "TEST_QLESS": json.dumps({"URL": server.url, "ARCHIVE": {"RETENTION": "3650d"}}),
        }
        import django

        django.setup()
        from django.conf import settings
        from django.core.management import call_command
        from django.test.utils import setup_test_environment

        setup_test_environment()
        settings.LOGGING_CONFIG = None
        call_command("migrate", verbosity=0)
        written()
        fill(options.rows)
        pages()


def written() -> None:
    from resty_django.qless.archive.writer import Writer
    from resty_django.qless.clients.default import default_client

    client = default_client()
    queue = client.queues["mail"]
    names = random.Random(1)
    for start in range(0, SENT, 100):
        for number in range(start, start + 100):
            customer = {"id": number, "name": names.choice(("Ann Meyer", "Bob Smith", "Cleo")), "password": "x"}
            queue.put("shop.tasks.send_invoice", {"args": [], "kwargs": {"customer": customer}}, tags=[f"c-{number}"])
        for job in queue.pop(100):
            job.complete()
    for _run in range(2):
        begin, cpu = time.perf_counter(), time.process_time()
        outcome = Writer(client).run()
        seconds, processor = time.perf_counter() - begin, time.process_time() - cpu
        speed = f"{outcome.written / seconds:,.0f} rows/s, {outcome.written / processor:,.0f} per second of processor"
        print(f"writer: {outcome.written:,} rows in {seconds:.2f} s, cpu {processor:.2f} s: {speed}", flush=True)


def fill(count: int) -> None:
    """Insert rows of the last year by SQL."""
    from django.db import connection

    first = "datetime('now', '-365 days')"
    table = "resty_qless_archivedjob"
    put = f"strftime('%Y-%m-%d %H:%M:%f', {first}, (n * 357.0 * 86400 / {count}) || ' seconds')"
    name = "CASE n % 3 WHEN 0 THEN 'Ann Meyer' WHEN 1 THEN 'Bob Smith' ELSE 'Cleo' END"
    failed = "n % 50 = 0"
    klass = "'shop.tasks.' || CASE WHEN n % 3 THEN 'render_' ELSE 'send_' END || (n % 10)"
    values = {
        "key": "lower(hex(randomblob(16)))",
        "klass": klass,
        "queue": "CASE WHEN n % 4 THEN 'pdf' ELSE 'mail' END",
        "state": f"CASE WHEN {failed} THEN 'failed' ELSE 'complete' END",
        "priority": "0",
        "tags": "'[\"customer-' || (n % 100000) || '\"]'",
        "txid": "printf('t%010d', n)",
        "arguments": (
            f"""'{{"args": [], "kwargs": {{"customer": {{"id": ' || n || ', "name": "' || {name} || '"}}}}}}'"""
        ),
        "arguments_are": "'redacted'",
        "error_group": f"CASE WHEN {failed} THEN 'pdf-KeyError' ELSE '' END",
        "error_message": f"CASE WHEN {failed} THEN 'KeyError: zip_code' ELSE '' END",
        "worker": "'web1-4711'",
        "retries": "5",
        "retries_left": "5",
        "put_at": put,
        "started_at": put,
        "finished_at": put,
        "waited": "0",
        "ran": "0",
        "history": """'[{"what": "put", "when": 1, "q": "mail"}, {"what": "done", "when": ' || n || '}]'""",
        "text": f"lower(n || ' ' || {klass} || ' t' || n || ' customer-' || (n % 100000) || ' ' || {name} || "
        f"CASE WHEN {failed} THEN ' pdf-keyerror: keyerror: zip_code' ELSE '' END)",
    }
    begin = time.process_time()
    with connection.cursor() as cursor:
        cursor.execute(
            f"WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count}) "
            f"INSERT INTO {table} ({', '.join(values)}) SELECT {', '.join(values.values())} FROM numbers"
        )
        cursor.execute("SELECT count(*) FROM resty_qless_archivedjob")
        rows = cursor.fetchone()[0]
        print(
            f"filled: {rows:,} rows, {time.process_time() - begin:,.0f} s, {size() / rows:,.0f} bytes per row",
            flush=True,
        )
    fill_terms(rows)


def fill_terms(rows: int) -> None:
    """Insert the terms that the writer would have inserted with the rows."""
    from django.db import connection

    from resty_django.qless.archive.rows import document_of
    from resty_django.qless.archive.terms import terms_of
    from resty_django.qless.models import ArchivedJob, ArchivedTerm

    begin, before = time.process_time(), size()
    tag = "json_extract(tags, '$[0]')"
    name = "lower(json_extract(arguments, '$.kwargs.customer.name'))"
    path = "' customer"
    terms = {
        "'#' || " + tag: "",
        "'w:customer #'": "",
        f"'w:' || substr({tag}, 10) || ' #'": "",
        f"'w:' || json_extract(arguments, '$.kwargs.customer.id') || {path}.id'": "",
        f"'w:' || substr({name}, 1, instr({name} || ' ', ' ') - 1) || {path}.name'": "",
        f"'w:' || substr({name}, instr({name}, ' ') + 1) || {path}.name'": f"instr({name}, ' ')",
        **{f"'w:{word} !'": "error_group > ''" for word in ("pdf", "keyerror", "zip", "code")},
    }
    table, job = ArchivedTerm._meta.db_table, ArchivedJob._meta.db_table
    [index] = ArchivedTerm._meta.indexes
    with connection.schema_editor() as editor, connection.cursor() as cursor:
        editor.remove_index(ArchivedTerm, index)  # it is faster to build at the end
        cursor.execute(f"DELETE FROM {table}")
        for term, condition in terms.items():
            cursor.execute(
                f"INSERT INTO {table} (job_id, term) SELECT id, {term} FROM {job} "
                f"WHERE klass LIKE '%\\_%' ESCAPE '\\' AND txid > '' AND {condition or 1}"
            )
        editor.add_index(ArchivedTerm, index)
        cursor.execute(f"SELECT count(*) FROM {table}")
        count = cursor.fetchone()[0]
    row = ArchivedJob.objects.filter(state="failed").order_by("-pk")[0]
    stored = sorted(ArchivedTerm.objects.filter(job=row).values_list("term", flat=True))
    assert stored == sorted(terms_of(document_of(row))), (stored, terms_of(document_of(row)))
    seconds = time.process_time() - begin
    print(f"indexed: {count:,} terms, {seconds:,.0f} s, {(size() - before) / rows:,.0f} bytes per row", flush=True)


def size() -> int:
    """Return the size of the database in bytes."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT page_count * page_size - freelist_count * page_size "
            "FROM pragma_page_count, pragma_page_size, pragma_freelist_count"
        )
        return int(cursor.fetchone()[0])


def pages() -> None:
    from django.contrib.auth.models import User
    from django.test import Client as Browser

    browser = Browser()
    browser.force_login(User.objects.create_superuser("bench"))
    for text, note in SEARCHES:
        for address in ("/admin/resty_qless/archivedjob/", "/admin/resty_qless/job/"):
            times: list[tuple[float, float]] = []
            reply: Any = None
            for _request in range(6):
                begin, cpu = time.perf_counter(), time.process_time()
                reply = browser.get(address, {"q": text})
                times.append((time.perf_counter() - begin, time.process_time() - cpu))
            clock, processor = (statistics.median(column) * 1000 for column in zip(*times[1:], strict=True))
            page = reply.content.decode()
            results = len(re.findall(r'archivedjob/[^"]*/change/" title=', page))
            more = "more" if 'rel="next"' in page else "all"
            progress = re.search(r"Examined [^<]*", page)
            line = f"{address:34} {text or '(all)':28} {clock:7,.0f} ms, cpu {processor:6,.0f} ms"
            print(f"{line}  {results:3} rows, {more} {progress[0] if progress else ''} {note}", flush=True)


if __name__ == "__main__":
    main()
