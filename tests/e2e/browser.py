"""Helpers for pages in a browser: with Selenium, and with Playwright."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

SECONDS = 10
DJANGOS = (
    ".breadcrumbs",
    "#header",
    "#nav-sidebar",
    "#changelist-search",
    "#changelist-filter",
    ".actions",
)
"""Parts of a page that Django makes, with faults such as fields without labels."""


def until(condition: Callable[[], Any]) -> Any:
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.support.wait import WebDriverWait

    wait: Any = WebDriverWait(None, SECONDS, 0.05, (StaleElementReferenceException,))  # type: ignore[type-var]
    return wait.until(lambda _: condition())


def all_of(driver: Any, selector: str) -> list[str]:
    return [element.text for element in driver.find_elements("css selector", selector)]


def write(driver: Any, name: str, text: str) -> None:
    field = driver.find_element("name", name)
    field.clear()
    field.send_keys(text)


def set_width(driver: Any, width: int) -> None:
    metrics = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def fits(driver: Any) -> bool:
    """Return whether the page fits into the width of the window."""
    return bool(
        driver.execute_script("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    )


@dataclass
class OpenPage:
    """Opens pages of Playwright: `open_page(dark=True)`."""

    start: Callable[..., Any]
    complaints: list[str] = field(default_factory=list)
    """Messages of the console."""

    def __call__(self, **options: Any) -> Any:
        return self.start(**options)

    def violations(self, page: Any, *, within: str | None = None, **options: Any) -> list[str]:
        """Return the serious violations of accessibility rules that axe finds on a page, or in a part of it."""
        try:
            from axe_playwright_python.sync_playwright import Axe
        except ImportError:
            pytest.skip("axe-playwright-python is not installed: pip install axe-playwright-python")
        if within and not page.locator(within).count():
            return []
        complaints_before = len(self.complaints)
        page.evaluate("document.getAnimations().forEach((animation) => animation.finish())")
        options = {"resultTypes": ["violations"], "preload": False, **options}
        context = {"exclude": [[part] for part in DJANGOS], **({"include": [[within]]} if within else {})}
        results = Axe().run(page, context=context, options=options).response
        del self.complaints[complaints_before:]  # about the styles of axe itself
        return [
            f"{violation['id']} {node['target']} {node['failureSummary']}"
            for violation in results["violations"]
            if violation["impact"] in ("serious", "critical")
            for node in violation["nodes"][:3]
        ]
