"""Pictures of the docs, from the demo: `make demo`, wait for some minutes, then

    python -m tests.pictures http://127.0.0.1:8000 [NAME]...

The picture of a job in docs/reference/jobs/admin.md comes from tests/e2e/test_jobs_browser.py, which leaves it in the
folder of RESTY_SCREENSHOTS, the tutorial's pictures from tests/wheel/test_tutorial.py. Pillow makes them small:
`pip install pillow`.
"""

from __future__ import annotations

import io
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

IMAGES: Final = Path(__file__).resolve().parents[1] / "docs" / "images"


@dataclass(frozen=True)
class Picture:
    url: str
    height: int = 900
    width: int = 1360
    dark: bool = False
    typed: str = ""
    """The text typed into the search box afterwards, to show its completions."""


PICTURES: Final = {
    "admin-overview": Picture("resty_django/overview/", 1300),
    "admin-dictionaries": Picture("resty_django/shareddictionary/", 600),
    "admin-caches": Picture("resty_cache/cache/default/change/"),
    "admin-jobs-overview": Picture("resty_qless/queue/"),
    "admin-jobs-list": Picture("resty_qless/job/"),
    "admin-jobs-failures": Picture("resty_qless/failuregroup/", 600),
    "admin-jobs-group": Picture("resty_qless/failuregroup/packing-OutOfStock/change/"),
    "admin-jobs-queue": Picture("resty_qless/queue/packing/change/", 1150),
    "admin-jobs-workers": Picture("resty_qless/worker/", 600),
    "admin-jobs-search": Picture("resty_qless/job/?q=state%3Afailed+error%3AOutOfStock", 900, typed="class:"),
    "admin-counters": Picture("resty_ids/idcounter/", 680),
    "admin-rule": Picture("resty_ids/idrule/1/change/", 1040),
    "admin-limits": Picture("resty_limits/limitpolicy/limits/figures/?limit=throttle%3Aprices%3Acount"),
    "themes-unfold": Picture("resty_qless/queue/", dark=True),
    "themes-unfold-phone": Picture("resty_qless/queue/", 844, 390),
    "themes-jazzmin": Picture("resty_qless/queue/"),
    "themes-jazzmin-phone": Picture("resty_qless/queue/", 844, 390, dark=True),
}


COMPLETE: Final = """(typed) => {
  const field = document.querySelector("input[list]"), box = field.getBoundingClientRect();
  const list = document.createElement("ul");
  const fitting = [...field.list.options].filter((option) => option.value.includes(typed)).slice(0, 6);
  if (!fitting.length) throw new Error(`no completion for ${typed}`);
  list.append(...fitting.map((option) => Object.assign(document.createElement("li"), { textContent: option.value })));
  Object.assign(list.style, {
    position: "absolute", left: `${box.left + scrollX}px`, top: `${box.bottom + scrollY + 1}px`,
    width: `${box.width}px`,
    boxSizing: "border-box", margin: 0, padding: "4px 0", zIndex: 9, background: "#fff", color: "#000",
    border: "1px solid #999", boxShadow: "0 2px 6px #0004", fontSize: "13px", lineHeight: "1.6",
  });
  for (const item of list.children) Object.assign(item.style, { listStyle: "none", padding: "0 8px" });
  document.body.append(list);
}"""
"""Draws the completions of the search box, which the browser shows in a window that screenshots do not contain."""


def store(png: bytes, file: Path) -> None:
    """Store a picture with a palette of 128 colours."""
    from PIL import Image

    picture = Image.open(io.BytesIO(png)).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    picture.save(file, optimize=True)


def take(browser: Any, site: str, name: str, picture: Picture) -> None:
    context = browser.new_context(
        viewport={"width": picture.width, "height": picture.height},
        color_scheme="dark" if picture.dark else "light",
        base_url=site,
    )
    tab = context.new_page()
    tab.goto("/admin/login/?next=/admin/")
    tab.fill("[name=username]", "admin")
    tab.fill("[name=password]", "admin")
    tab.press("[name=password]", "Enter")
    tab.wait_for_url("**/admin/")
    reply = tab.goto(f"/admin/{picture.url}")
    if reply is None or not reply.ok:
        raise SystemExit(f"{picture.url} does not exist on {site}.")
    tab.wait_for_timeout(1000)  # for the line of live updates
    if picture.typed:
        tab.fill("input[list]", picture.typed)
        tab.evaluate(COMPLETE, picture.typed)
    store(tab.screenshot(), IMAGES / f"{name}.png")
    context.close()


def main(site: str, *names: str) -> None:
    from playwright.sync_api import sync_playwright

    chosen = names or [name for name in PICTURES if not name.startswith("themes-")]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name in chosen:
            take(browser, site, name, PICTURES[name])
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
