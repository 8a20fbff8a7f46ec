"""The options of the handler: what is taken, and what is said about what is not."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from resty_django.logs import BadOption, LogOptions, SocketHandler
from tests.docs_reader import code, page

SERVER = {"host": "127.0.0.1", "port": 5170}

WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "SocketHandler needs the log server's address. Set host and port, or path for a Unix socket."),
    ({"host": "127.0.0.1"}, "host and port must be set together. Set both, or only path."),
    ({"port": 5170, "path": "/run/log"}, "host and port must be set together. Set both, or only path."),
    ({"host": "", "port": 5170}, "host must be a non-empty string, not ''."),
    ({"host": b"a", "port": 5170}, "host must be a non-empty string, not b'a'."),
    ({"host": "a", "port": "5170"}, "port must be a whole number from 0 to 65535, not '5170'."),
    ({"host": "a", "port": 65536}, "port must be a whole number from 0 to 65535, not 65536."),
    ({"host": "a", "port": -1}, "port must be a whole number from 0 to 65535, not -1."),
    ({"host": "a", "port": True}, "port must be a whole number from 0 to 65535, not True."),
    ({"path": 7}, "path must be a non-empty string, not 7."),
    (
        {"path": "/run/log", "sock_type": "udp"},
        "path is a Unix stream socket, so it cannot be combined with sock_type udp or",
    ),
    ({"path": "/run/log", "ssl": True}, "path is a Unix stream socket, so it cannot be combined with sock_type"),
    ({**SERVER, "sock_type": "sctp"}, 'sock_type must be "tcp" or "udp", not \'sctp\'.'),
    ({**SERVER, "flush_limit": -1}, "flush_limit must be a whole number, at least 0, not -1."),
    ({**SERVER, "flush_limit": 1.5}, "flush_limit must be a whole number, at least 0, not 1.5."),
    ({**SERVER, "drop_limit": "1M"}, "drop_limit must be a whole number, at least 0, not '1M'."),
    ({**SERVER, "flush_limit": 100, "drop_limit": 100}, "flush_limit (100) must be less than drop_limit (100)."),
    ({**SERVER, "timeout": "1"}, "timeout must be a number, at least 0, not '1'."),
    ({**SERVER, "timeout": float("nan")}, "timeout must be a number, at least 0, not nan."),
    ({**SERVER, "timeout": 0}, "timeout must be greater than 0; it is in milliseconds."),
    ({**SERVER, "max_retry_times": -1}, "max_retry_times must be a whole number, at least 0, not -1."),
    ({**SERVER, "retry_interval": None}, "retry_interval must be a number, at least 0, not None."),
    ({**SERVER, "resend": -1}, "resend must be a number, at least 0, not -1."),
    ({**SERVER, "periodic_flush": True}, "periodic_flush must be a number, at least 0, not True."),
    ({**SERVER, "ssl": "yes"}, "ssl must be True or False, not 'yes'."),
    ({**SERVER, "ssl": True, "ssl_verify": 0}, "ssl_verify must be True or False, not 0."),
    ({**SERVER, "ssl": True, "sock_type": "udp"}, "ssl needs TCP. Set sock_type to tcp."),
    ({**SERVER, "sni_host": "logs"}, "sni_host and ca_file need TLS. Set ssl=True."),
    ({**SERVER, "terminator": b"\n"}, "terminator must be a string, not b'\\n'."),
    (
        {**SERVER, "flush_limt": 1},
        "flush_limt is not an option of SocketHandler. Options: host, port, path, sock_type,",
    ),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=[message for _, message in WRONG])
def test_a_wrong_option_is_reported_by_the_constructor(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadOption) as caught:
        SocketHandler(**options)
    assert str(caught.value).startswith(message)


def test_an_unreadable_file_of_certificates_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match=r"ca_file .*absent\.pem"):
        SocketHandler(**SERVER, ssl=True, ca_file=tmp_path / "absent.pem")
    (tmp_path / "empty.pem").touch()
    with pytest.raises(BadOption, match=r"ca_file .*empty\.pem"):
        SocketHandler(**SERVER, ssl=True, ca_file=tmp_path / "empty.pem")


def test_the_defaults_equal_the_defaults_of_lua_resty_logger_socket() -> None:
    options = LogOptions.of(SERVER)
    assert (options.sock_type, options.flush_limit, options.drop_limit) == ("tcp", 4096, 1_048_576)
    assert (options.timeout, options.max_retry_times, options.retry_interval) == (1000, 3, 100)
    assert (options.periodic_flush, options.ssl, options.ssl_verify, options.sni_host) == (None, False, True, None)


@pytest.mark.parametrize(
    ("options", "address"),
    [
        (SERVER, "tcp://127.0.0.1:5170"),
        ({**SERVER, "path": "/run/log"}, "tcp://127.0.0.1:5170"),
        ({**SERVER, "ssl": True}, "tls://127.0.0.1:5170"),
        ({**SERVER, "sock_type": "udp"}, "udp://127.0.0.1:5170"),
        ({"host": "::1", "port": 0}, "tcp://[::1]:0"),
        ({"path": Path("/run/log")}, "unix:/run/log"),
    ],
)
def test_host_and_port_win_over_a_path(options: dict[str, Any], address: str) -> None:
    assert LogOptions.of(options).address == address


def test_the_table_of_the_documentation_has_all_options_and_their_defaults() -> None:
    documented: dict[str, Any] = {}
    for names, default, _ in page("docs/reference/request-ids/logs.md").table("option", "default", "meaning"):
        documented |= dict.fromkeys(re.findall(r"`(\w+)`", names), ast.literal_eval(code(default)))
    assert documented == {field.name: field.default for field in dataclasses.fields(LogOptions)}
