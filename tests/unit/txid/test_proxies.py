"""Callers whose txids are accepted."""

from __future__ import annotations

import pytest

from resty_django.txid.middleware import is_trusted


@pytest.mark.parametrize(
    ("address", "proxies", "trusted"),
    [
        ("127.0.0.1", (), False),
        (None, (), False),
        ("", (), False),
        ("10.1.2.3", ("10.0.0.0/8",), True),
        ("11.1.2.3", ("10.0.0.0/8",), False),
        ("11.1.2.3", ("10.0.0.0/8", "11.1.2.3"), True),
        ("::ffff:10.1.2.3", ("10.0.0.0/8",), True),
        ("fd00::7", ("10.0.0.0/8", "fd00::/8"), True),
        ("fe80::1%eth0", ("fe80::/10",), True),
        ("10.1.2.3", ("unix",), False),
        ("", ("unix",), True),
        (None, ("10.0.0.0/8", "unix"), True),
        ("unix:", ("unix",), True),
        ("unix:", ("10.0.0.0/8",), False),
        ("testserver", ("0.0.0.0/0",), False),
        ("10.1.2.3, 10.1.2.4", ("0.0.0.0/0",), False),
    ],
)
def test_proxies_are_recognized_by_their_address(address: str | None, proxies: tuple[str, ...], trusted: bool) -> None:
    assert is_trusted(address, proxies) is trusted
