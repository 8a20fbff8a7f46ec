"""The built wheel holds everything that a site needs."""

from __future__ import annotations

import pathlib
import re
import runpy
import zipfile
from email import message_from_string

import resty_django
from resty_django.address import page_url
from tests.wheel import conftest

ROOT = pathlib.Path(__file__).resolve().parents[2]
wheel = conftest.wheel


def test_every_file_of_the_package_is_in_the_wheel(wheel: pathlib.Path) -> None:
    sources = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "resty_django").rglob("*")
        if path.is_file() and path.suffix not in {".pyc", ".pyo"}
    }
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    assert sources - packed == set()
    assert "resty_django/py.typed" in packed
    assert {name.split("/")[0] for name in packed} == {
        "resty_django",
        f"resty_django-{resty_django.__version__}.dist-info",
    }


def test_the_metadata_names_version_python_and_extras(wheel: pathlib.Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"resty_django-{resty_django.__version__}.dist-info/METADATA").decode()
    metadata = message_from_string(text)
    assert metadata["Name"] == "resty-django"
    assert metadata["Requires-Python"] == ">=3.11"
    extras = metadata.get_all("Provides-Extra", [])
    assert {"all", "api", "cache", "celery", "embedded", "jobs", "lua", "metrics", "mysql", "redis", "tasks"} <= {
        *extras
    }
    assert {"rate limiting", "task queue", "cron", "correlation id"} <= set(metadata["Keywords"].split(","))
    assert "dev" not in extras
    assert metadata.get_payload() == (ROOT / "README.md").read_text()
    assert metadata.get_all("Project-URL", []) == []


def test_an_address_of_the_project_reaches_metadata_and_readme() -> None:
    described = runpy.run_path(str(ROOT / "hatch_build.py"))["described"]
    readme = "[a](docs/a.md#b) ![c](docs/c.png) [d](https://example.com/d) [e](#e) [f](LICENSE)"
    assert described(readme, page_url, "")["readme"]["text"] == readme
    assert described(readme, page_url, "")["urls"] == {}
    metadata = described(readme, page_url, "https://example.org/docs", "https://example.org/files")
    assert metadata["readme"]["text"] == (
        "[a](https://example.org/docs/a.html#b) ![c](https://example.org/files/docs/c.png) [d](https://example.com/d) "
        "[e](#e) [f](https://example.org/files/LICENSE)"
    )
    assert set(metadata["urls"]) == {"Homepage", "Documentation", "Changelog"}
    urls = described(readme, page_url, "https://example.org/docs", repository="https://example.org/resty.git")["urls"]
    assert urls["Source"] == "https://example.org/resty"
    assert urls["Issues"] == "https://example.org/resty/issues"


def test_the_readme_outside_of_the_repository_has_no_relative_link() -> None:
    described = runpy.run_path(str(ROOT / "hatch_build.py"))["described"]
    readme = (ROOT / "README.md").read_text()
    places = (f"https://example.org/{name}" for name in ("pages", "files", "raw", "resty.git"))
    text = described(readme, page_url, *places)["readme"]["text"]
    targets = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))
    assert len(targets) >= 15
    assert [target for target in targets if not target.startswith("https://")] == []
    assert [target for target in targets if "/raw/" in target] == [
        "https://example.org/raw/docs/images/admin-overview.png"
    ]
    blocks = re.findall(r"^```python.*?^```$", readme, flags=re.MULTILINE | re.DOTALL)
    assert blocks == re.findall(r"^```python.*?^```$", text, flags=re.MULTILINE | re.DOTALL)
