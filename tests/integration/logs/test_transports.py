"""The handler over real sockets: TCP, TLS, Unix and UDP."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from resty_django import health
from resty_django.logs import SocketHandler
from tests.logserver import LogServer, free_port, until

from .conftest import Ship


def test_messages_arrive_whole_and_in_order(stream: LogServer, ship: Ship) -> None:
    logger, handler = ship(stream)
    messages = [f"order {number} was paid: {'x' * (number % 300)}" for number in range(3000)]
    for text in messages:
        logger.info("%s", text)
    handler.flush()
    until(lambda: len(stream.lines()) == len(messages))
    assert stream.lines() == messages
    figures = handler.stats()
    assert (figures.sent, figures.resent, figures.waiting, figures.dropped, figures.error) == (3000, 0, 0, 0, None)


def test_a_few_messages_wait_for_more_until_somebody_flushes(tcp: LogServer, ship: Ship) -> None:
    logger, handler = ship(tcp)
    logger.info("one")
    time.sleep(0.3)
    assert (tcp.lines(), handler.stats().waiting) == ([], 1)
    handler.flush()
    until(lambda: tcp.lines() == ["one"])


def test_messages_are_flushed_automatically_at_the_flush_limit(tcp: LogServer, ship: Ship) -> None:
    logger, handler = ship(tcp, flush_limit=100)
    logger.info("x" * 98)
    assert handler.stats().waiting == 1
    logger.info("y")
    until(lambda: tcp.lines() == ["x" * 98, "y"])


def test_messages_are_flushed_periodically_if_configured(tcp: LogServer, ship: Ship) -> None:
    logger, _ = ship(tcp, periodic_flush=0.1)
    for number in range(3):
        logger.info("%d", number)
        until(lambda number=number: len(tcp.lines()) == number + 1)


def test_texts_of_all_kinds_are_bytes(tcp: LogServer, ship: Ship) -> None:
    logger, handler = ship(tcp)
    logger.info("Grüße \N{SNOWMAN} \ud800")
    handler.flush()
    until(lambda: tcp.lines() == ["Grüße \N{SNOWMAN} \\ud800"])


def test_the_terminator_is_an_option(tcp: LogServer, ship: Ship) -> None:
    logger, handler = ship(tcp, terminator="|\n")
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.warning("one")
    logger.error("two")
    handler.flush()
    until(lambda: tcp.lines() == ["WARNING one|", "ERROR two|"])


def test_a_record_that_cannot_be_formatted_is_reported_as_usual(
    tcp: LogServer, ship: Ship, capsys: pytest.CaptureFixture[str]
) -> None:
    logger, handler = ship(tcp)
    logger.info("%d", "no number")
    assert "--- Logging error ---" in capsys.readouterr().err
    assert handler.stats().waiting == 0


def test_threads_and_tasks_share_a_handler(tcp: LogServer, ship: Ship) -> None:
    logger, handler = ship(tcp)

    def work(name: str) -> None:
        for number in range(500):
            logger.info("%s %d", name, number)

    async def both() -> None:
        async def task(name: str) -> None:
            for number in range(500):
                logger.info("%s %d", name, number)
                await asyncio.sleep(0)

        await asyncio.gather(task("d"), task("e"))

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    asyncio.run(both())
    for thread in threads:
        thread.join()
    handler.flush()
    until(lambda: len(tcp.lines()) == 2500)
    for name in "abcde":
        assert [line for line in tcp.lines() if line[0] == name] == [f"{name} {number}" for number in range(500)]


# --- TLS ---


@pytest.fixture
def tls(tmp_path: Path, certificate: Path) -> Any:
    with LogServer("tls", tmp_path, certificate) as server:
        yield server


@pytest.mark.parametrize(
    ("option", "problem"),
    [({"ca_file": None}, "CERTIFICATE_VERIFY_FAILED"), ({"sni_host": "logs.example.org"}, "'logs.example.org'")],
)
def test_an_unknown_certificate_or_name_is_refused_and_the_messages_stay(
    tls: LogServer, ship: Ship, option: dict[str, Any], problem: str
) -> None:
    logger, handler = ship(tls, **option, max_retry_times=0)
    logger.info("secret")
    handler.flush()
    error = handler.stats().error
    assert error is not None
    assert problem in error
    assert (handler.stats().waiting, tls.lines()) == (1, [])


@pytest.mark.parametrize("options", [{"ssl_verify": False, "ca_file": None}, {"sni_host": "localhost"}])
def test_the_check_can_be_for_another_name_or_left_out(tls: LogServer, ship: Ship, options: dict[str, Any]) -> None:
    logger, handler = ship(tls, **options)
    logger.info("told")
    handler.flush()
    until(lambda: tls.lines() == ["told"])


def test_a_plain_server_is_not_taken_for_one_with_tls(tcp: LogServer, ship: Ship, certificate: Path) -> None:
    logger, handler = ship(tcp, ssl=True, ca_file=certificate, timeout=300, max_retry_times=0)
    logger.info("secret")
    handler.flush()
    error = handler.stats().error
    assert error is not None
    assert error.startswith("connecting failed: ")
    assert handler.stats().waiting == 1


def test_the_tls_session_is_resumed(certificate: Path) -> None:
    import ssl

    from resty_django.logs import LogOptions
    from resty_django.logs.connection import Connection

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    reused, received = [], threading.Semaphore(0)

    def serve(listener: socket.socket) -> None:
        for _ in range(2):
            sock, _ = listener.accept()
            with context.wrap_socket(sock, server_side=True) as wrapped:
                while wrapped.recv(100):
                    received.release()
                reused.append(wrapped.session_reused)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        port = listener.getsockname()[1]
        connection = Connection(
            LogOptions(host="127.0.0.1", port=port, ssl=True, ca_file=str(certificate), timeout=10000)
        )
        for _ in range(2):
            connection.open()
            connection.send(b"told\n")
            assert received.acquire(timeout=20)  # the server has sent its ticket before
            connection.finish()
        thread.join(20)
    assert reused == [False, True]


# --- UDP ---


@pytest.fixture
def datagrams() -> Any:
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(10)
        yield sock


def test_datagrams_are_split_between_messages(datagrams: socket.socket) -> None:
    handler = SocketHandler(host="127.0.0.1", port=datagrams.getsockname()[1], sock_type="udp")
    logger = logging.Logger("shop")
    logger.addHandler(handler)
    messages = [f"{number} {'x' * 500}\n" for number in range(7)]
    messages[3] = f"3 {'y' * 5000}\n"
    for text in messages:
        logger.info("%s", text[:-1])
    handler.close()
    got = [datagrams.recv(65535).decode() for _ in range(4)]
    assert got == ["".join(messages[:2]), messages[2], messages[3], "".join(messages[4:6])]
    assert datagrams.recv(65535).decode() == messages[6]


def test_a_message_longer_than_any_datagram_is_dropped_and_counted(datagrams: socket.socket) -> None:
    handler = SocketHandler(host="127.0.0.1", port=datagrams.getsockname()[1], sock_type="udp")
    logger = logging.Logger("shop")
    logger.addHandler(handler)
    logger.info("x" * 70_000)
    logger.info("short")
    handler.flush()
    assert datagrams.recv(65535) == b"short\n"
    assert (handler.stats().sent, handler.stats().dropped, handler.stats().error) == (1, 1, None)
    handler.close()


def test_over_udp_all_arrives_where_nothing_is_in_the_way(tmp_path: Path, ship: Ship) -> None:
    with LogServer("udp", tmp_path) as server:
        logger, handler = ship(server)
        for number in range(1000):
            logger.info("%d", number)
        handler.flush()
        until(lambda: len(server.lines()) == 1000)
        assert server.lines() == [str(number) for number in range(1000)]


# --- the probe ---


def findings() -> dict[str, str]:
    return {finding.subject: finding.level for _, finding in health.run(["logs"])}


def test_the_probe_reports_whether_each_server_accepts_connections(
    tcp: LogServer, ship: Ship, certificate: Path
) -> None:
    handler = ship(tcp)[1]
    away = SocketHandler(host="127.0.0.1", port=free_port())
    by_subject = findings()
    assert (by_subject[handler.options.address], by_subject[away.options.address]) == ("ok", "error")
    tcp.kill()
    assert findings()[handler.options.address] == "error"
