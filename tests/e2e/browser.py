"""Helpers for pages in a browser that Selenium drives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SECONDS = 10


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
