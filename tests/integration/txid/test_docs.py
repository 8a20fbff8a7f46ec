"""The examples of logging in the page of txids work unchanged: each `LOGGING` is set up in a separate process."""

from __future__ import annotations

import json
import re
import subprocess
import sys

from tests.docs_reader import ROOT, Block, page

PAGE = page("docs/reference/request-ids/txid.md")
SHOWN = [block for block in PAGE.blocks if block.text.startswith("LOGGING =")]
ID = "cbpvimguo4hkaps9lf6g"

PROGRAM = """
import logging, os, sys
from django.conf import settings
exec(sys.stdin.read())
settings.configure(LOGGING=LOGGING)
import django
django.setup()
from resty_django.txid import bound
log = logging.getLogger("shop.orders")
log.info("outside")
with bound(sys.argv[1]):
    log.info("within", extra={"status_code": 404})
"""


def written(block: Block) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, ID], cwd=ROOT, input=block.text, capture_output=True, text=True, check=True
    )
    return done.stderr.splitlines()


def test_there_are_two_ways_to_write_lines() -> None:
    assert len(SHOWN) == 2


def test_plain_lines_have_the_txid() -> None:
    outside, within = written(SHOWN[0])
    assert re.fullmatch(r"[\d-]+ [\d:,]+ INFO - shop\.orders: outside", outside)
    assert re.fullmatch(rf"[\d-]+ [\d:,]+ INFO {ID} shop\.orders: within", within)


def test_lines_of_json_have_the_keys_that_are_shown() -> None:
    outside, within = (json.loads(line) for line in written(SHOWN[1]))
    assert (outside["txid"], outside["message"]) == ("-", "outside")
    assert (within["txid"], within["status_code"], within["logger"]) == (ID, 404, "shop.orders")
    (block,) = (block for block in PAGE.blocks if block.language == "json")
    example = json.loads(block.text)
    assert [key for key in example if key not in ("trace_id", "span_id")] == list(within)


def test_the_times_in_the_documented_line_agree() -> None:
    from resty_django.txid import parse

    (block,) = (block for block in PAGE.blocks if block.language == "json")
    example = json.loads(block.text)
    parsed = parse(example["txid"])
    assert parsed.time.isoformat(timespec="milliseconds") == example["time"].replace("Z", "+00:00")
    assert int(example["trace_id"][:24], 16) == parsed.number
