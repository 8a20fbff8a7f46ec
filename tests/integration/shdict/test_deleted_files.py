"""Files of a dictionary that are deleted while processes use them: the processes notice it."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from resty_django.shdict import Keep, Unavailable, Update, WrongOwner, shdicts
from resty_django.shdict.health import probe
from resty_django.shdict.lmdb import LmdbDict, files
from resty_django.shdict.lmdb.environment import make as make_memory
from tests.dictionaries import MIB

from .structure import look_at_once, open_file


@pytest.fixture
def dictionary(folder: Path) -> Iterator[LmdbDict]:
    lmdb_dict = LmdbDict("one", MIB, str(folder))
    lmdb_dict.set("lock", "first")
    yield lmdb_dict
    lmdb_dict.close()


def other_process(folder: Path) -> files.DictFile:
    """Open the dictionary as another process does."""
    return files.open_dict_file("one", MIB, str(folder), make_memory)


DELETIONS: dict[str, Callable[[Path], object]] = {
    "the folder": shutil.rmtree,
    "the data": lambda folder: (folder / "one.mdb").unlink(),
    "the lock file": lambda folder: (folder / "one.mdb-lock").unlink(),
    "the flushes": lambda folder: (folder / "one.mdb-flushes").unlink(),
    "the manifest": lambda folder: (folder / "one.card").unlink(),
    "replaced": lambda folder: (
        shutil.copy(folder / "one.mdb", folder / "copy"),
        os.replace(folder / "copy", folder / "one.mdb"),
    ),
}
WRITES: dict[str, Callable[[LmdbDict], object]] = {
    "set": lambda one: one.set("k", 1),
    "add": lambda one: one.add("k", 1),
    "incr": lambda one: one.incr("k", 1, init=0),
    "update": lambda one: one.update("k", lambda old: Keep()),
    "rpush": lambda one: one.rpush("k", "x"),
    "delete": lambda one: one.delete("k"),
}


@pytest.mark.parametrize(
    ("delete", "write"),
    [*((name, "set") for name in DELETIONS), *(("the data", name) for name in WRITES if name != "set")],
)
def test_a_write_notices_it_and_continues_with_the_current_file(
    dictionary: LmdbDict,
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    delete: str,
    write: str,
) -> None:
    DELETIONS[delete](folder)
    look_at_once(dictionary)
    with caplog.at_level(logging.ERROR, "resty_django.shdict"):
        WRITES[write](dictionary)
    assert "was deleted or replaced while this process used" in caplog.text
    assert "The likely cause is" in caplog.text
    look_at_once(dictionary)
    caplog.clear()
    dictionary.set("again", 1)
    assert caplog.text == ""
    assert open_file(dictionary).data == other_process(folder).data


def test_files_are_checked_once_per_second(dictionary: LmdbDict, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(files.DictFile, "missing", lambda self: looks.append(1))
    look_at_once(dictionary)
    for _ in range(100):
        dictionary.incr("n", 1, init=0)
    assert 1 <= len(looks) <= 30


def test_a_write_within_a_write_keeps_the_memory_open(dictionary: LmdbDict, folder: Path) -> None:
    def change(old: object) -> Update:
        shutil.rmtree(folder)
        look_at_once(dictionary)
        with pytest.raises(RuntimeError, match="already writing"):
            dictionary.set("other", 1)
        return Update("new", 0)

    dictionary.update("lock", change)
    look_at_once(dictionary)
    dictionary.set("k", 1)
    assert dictionary.get("lock") is None


def test_a_later_process_creates_no_second_memory_while_the_first_is_in_use(
    dictionary: LmdbDict, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise an empty file would appear, and two processes could acquire a lock."""
    monkeypatch.setattr(files, "MAX_OPEN_TRIES", 3)
    (folder / "one.mdb").unlink()
    with pytest.raises(Unavailable, match="were deleted") as caught:
        other_process(folder)
    assert "The likely cause is" in str(caught.value)
    assert not (folder / "one.mdb").exists()
    look_at_once(dictionary)
    dictionary.set("k", 1)
    other_process(folder).release()


def test_resty_check_names_processes_that_use_a_deleted_file(
    dictionary: LmdbDict, folder: Path, settings: object
) -> None:
    settings.RESTY_DJANGO = {  # type: ignore[attr-defined]
        "SHARED_DICTS": {"one": {"PATH": str(folder), "SIZE": MIB}, "default": {"PATH": str(folder)}}
    }
    by_subject = {finding.subject: finding for finding in probe()}
    assert by_subject["dictionary default"].level == "ok"
    shutil.rmtree(folder)
    shdicts.close_all()
    later = files.open_dict_file("one", MIB, str(folder), make_memory)
    assert files.users_of_deleted(later.data) == [os.getpid()]
    by_subject = {finding.subject: finding for finding in probe()}
    assert by_subject["dictionary one"].level == "error", "this process uses both, as two processes would"
    assert f"pid {os.getpid()}" in by_subject["dictionary one"].message
    assert "Restart them." in by_subject["dictionary one"].message
    shdicts.close_all()


@pytest.mark.parametrize(
    ("data", "phrase"),
    [
        ("/dev/shm/resty/one.mdb", "RemoveIPC=no"),  # noqa: S108
        (f"{tempfile.gettempdir()}/resty/one.mdb", "systemd-tmpfiles"),
        ("/srv/shop/one.mdb", "a deployment"),
    ],
)
def test_the_likely_cause_is_named(data: str, phrase: str) -> None:
    assert phrase in files.likely_cause(Path(data))


@pytest.mark.parametrize("mode", [0o1777, 0o777, 0o775])
def test_a_shared_folder_keeps_its_mode(folder: Path, mode: int) -> None:
    """Like the folder for temporary files."""
    folder.mkdir()
    (folder / "of somebody else").write_text("")
    folder.chmod(mode)
    with pytest.raises(WrongOwner) as caught:
        LmdbDict("one", MIB, str(folder)).get("k")
    assert "700" not in str(caught.value)
    assert "Set PATH to a folder inside it" in str(caught.value)
    inside = str(caught.value).rpartition("such as '")[2].rstrip("'.")
    inner = LmdbDict("one", MIB, inside)
    inner.set("k", 1)
    assert inner.get("k") == 1
    inner.close()


def test_an_empty_folder_with_the_sticky_bit_keeps_its_mode(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o1777)
    with pytest.raises(WrongOwner, match="PATH"):
        LmdbDict("one", MIB, str(folder)).get("k")
