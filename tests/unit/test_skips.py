"""A skip that nobody expects fails where every test has to run."""

from __future__ import annotations

import pytest

from tests import skips

pytest_plugins = ["pytester"]

FILES = {
    "test_reason": "import pytest\ndef test_it(): pytest.skip('no server')\n",
    "test_mark": "import pytest\n@pytest.mark.skipif(True, reason='no server')\ndef test_it(): pass\n",
    "test_module": "import pytest\npytest.importorskip('no_such_module')\ndef test_it(): pass\n",
}


@pytest.fixture
def folder(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyprojecttoml("[tool.pytest.ini_options]\n")
    return pytester


def outcomes(folder: pytest.Pytester, *arguments: str) -> tuple[int, int, int]:
    """Passed, skipped and failed tests or modules."""
    options = ("-p", "no:randomly", "-p", "no:django", "-p", "no:asyncio", "-p", "no:cacheprovider", *arguments)
    passed, skipped, failed = folder.inline_run(*options, plugins=[skips]).countoutcomes()
    return passed, skipped, failed


@pytest.mark.parametrize("name", FILES)
def test_an_unexpected_skip_fails(folder: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv("CI", raising=False)
    folder.makepyfile(**{name: FILES[name]})
    assert outcomes(folder) == (0, 1, 0)
    assert outcomes(folder, "--no-skips") == (0, 0, 1)
    monkeypatch.setenv("CI", "true")
    assert outcomes(folder) == (0, 0, 1)


def test_expected_skips_and_failures_stay_unchanged(folder: pytest.Pytester) -> None:
    reason = min(skips.EXPECTED)
    folder.makepyfile(
        f"""
        import pytest
        def test_skipped(): pytest.skip({reason!r})
        @pytest.mark.xfail
        def test_known(): assert False
        def test_passes(): pass
        """
    )
    assert outcomes(folder, "--no-skips") == (1, 2, 0)
