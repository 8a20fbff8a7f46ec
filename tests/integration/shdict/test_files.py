"""The location of a dictionary's files, and the processes that may create them."""

from __future__ import annotations

import ctypes
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from resty_django.shdict import DiskFull, SizeChanged, Unavailable, WrongOwner, shdicts
from resty_django.shdict.health import probe
from resty_django.shdict.lmdb import LmdbDict, files
from tests import processes
from tests.dictionaries import MIB

from .structure import check

ROOT = Path(__file__).resolve().parents[3]
SETTING = 'RESTY_DJANGO["SHARED_DICTS"]["one"]'


@pytest.fixture
def make(folder: Path) -> Iterator[Callable[..., LmdbDict]]:
    """A dictionary in `folder`; all are closed after the test."""
    dictionaries: list[LmdbDict] = []

    def dictionary(name: str = "one", size: int = MIB, path: str | None = str(folder)) -> LmdbDict:
        dictionaries.append(LmdbDict(name, size, path))
        return dictionaries[-1]

    yield dictionary
    for lmdb_dict in dictionaries:
        lmdb_dict.close()


def in_another_process(folder: Path, size: int, code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `code` with `one`, the same dictionary, in another process."""
    begin = f"from resty_django.shdict.lmdb import LmdbDict\none = LmdbDict('one', {size}, {str(folder)!r})\n"
    return processes.run(
        [sys.executable, "-c", begin + code],
        env={**os.environ, "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "project.settings", **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def manifest(folder: Path) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads((folder / "one.card").read_text())
    return fields


def rewrite(folder: Path, **changes: Any) -> None:
    (folder / "one.card").write_text(json.dumps({**manifest(folder), **changes}))


def test_only_the_owner_can_access_the_files(make: Callable[..., LmdbDict], folder: Path) -> None:
    make().set("k", "v")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == dict.fromkeys(["one.card", "one.mdb", "one.mdb-lock", "one.mdb-flushes"], 0o600)


def test_missing_parents_are_private_too(make: Callable[..., LmdbDict], tmp_path: Path) -> None:
    make(path=str(tmp_path / "a" / "b" / "c")).set("k", "v")
    assert [stat.S_IMODE((tmp_path / path).stat().st_mode) for path in ("a", "a/b", "a/b/c")] == [0o700] * 3


def test_every_byte_is_there_from_the_start(make: Callable[..., LmdbDict], folder: Path) -> None:
    make().set("k", "v")
    for name in ("one.mdb", "one.mdb-lock", "one.mdb-flushes"):
        facts = (folder / name).stat()
        assert facts.st_blocks * 512 >= facts.st_size
    assert (folder / "one.mdb").stat().st_size == MIB


def test_the_size_is_rounded_down_to_whole_pages(make: Callable[..., LmdbDict], folder: Path) -> None:
    dictionary = make(size=MIB + 5000)
    assert dictionary.capacity() == MIB + 4096
    dictionary.set("k", "v")
    assert (folder / "one.mdb").stat().st_size == MIB + 4096
    dictionary.close()
    assert make(size=MIB + 4097).get("k") == "v"


NAMES = [
    "default",
    "..",
    ".",
    "a/b",
    "../up",
    "with space",
    "é漢",
    "a:b%",
    "nul\0",
    "x" * 300,
    "X" * 300,
    "-",
    "c.card",
]


def test_names_of_any_characters_have_separate_files(
    make: Callable[..., LmdbDict], folder: Path, tmp_path: Path
) -> None:
    for name in NAMES:
        make(name).set("name", name)
    for name in NAMES:
        assert make(name).name == name
    manifests = {path.name for path in folder.iterdir() if path.name.endswith(".card")}
    assert len(manifests) == len(NAMES)
    assert {path.parent for path in tmp_path.rglob("*.mdb")} == {folder}


def test_a_dictionary_outlives_its_processes(make: Callable[..., LmdbDict], folder: Path) -> None:
    dictionary = make()
    dictionary.set("k", "v", 1000)
    dictionary.close()
    code = "assert one.get('k') == 'v'; assert 900 < one.ttl('k') <= 1000; one.set('k', 'w')"
    done = in_another_process(folder, MIB, code)
    assert done.returncode == 0, done.stderr
    assert dictionary.get("k") == "w"


def test_one_file_is_opened_once_in_a_process(make: Callable[..., LmdbDict]) -> None:
    make().set("k", "v")
    with pytest.raises(Unavailable, match="already open in this process"):
        make().get("k")


# --- the folder ---


def test_a_folder_of_somebody_else_is_refused(
    make: Callable[..., LmdbDict], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(WrongOwner) as caught:
        make().get("k")
    assert f"{folder}, the folder of {SETTING}, is not a directory of the user 12345" in str(caught.value)
    assert "set PATH" in str(caught.value)
    assert not list(folder.iterdir())


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o720, 0o702])
def test_a_folder_that_others_may_write_to_is_refused(make: Callable[..., LmdbDict], folder: Path, mode: int) -> None:
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(WrongOwner, match="mode"):
        make().get("k")
    folder.chmod(0o755)
    make().set("k", "v")


def test_a_folder_that_is_a_link_or_a_file_is_refused(
    make: Callable[..., LmdbDict], folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WrongOwner, match="is not a directory"):
        make().get("k")
    assert not list((tmp_path / "elsewhere").iterdir())
    folder.unlink()
    folder.symlink_to(tmp_path / "nowhere")
    with pytest.raises(Unavailable):
        make().get("k")
    folder.unlink()
    folder.write_text("")
    with pytest.raises(Unavailable):
        make().get("k")


def test_a_folder_that_cannot_be_created_is_an_error(make: Callable[..., LmdbDict]) -> None:
    with pytest.raises(Unavailable, match="cannot be used") as caught:
        make(path="/proc/nothing").get("k")
    assert SETTING in str(caught.value)
    assert "Set PATH" in str(caught.value)


@pytest.fixture
def bases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Folders that replace the memory file system and the folder for temporary files."""
    memory, temporary = tmp_path / "memory", tmp_path / "temporary"
    memory.mkdir()
    temporary.mkdir()
    monkeypatch.setattr(files, "MEMORY_FOLDER", memory)
    monkeypatch.setattr(files.tempfile, "gettempdir", lambda: str(temporary))
    return memory, temporary


def test_sites_have_separate_folders(make: Callable[..., LmdbDict], bases: tuple[Path, Path]) -> None:
    first = make(path=None)
    first.set("k", "of the first")
    with override_settings(SECRET_KEY="another"):
        second = make(path=None)
        assert second.get("k") is None
        second.set("k", "of the second")
    first.close()
    assert first.get("k") == "of the first"
    folders = list(bases[0].iterdir())
    assert len(folders) == 2
    assert all(folder.name.startswith(f"resty-{os.geteuid()}-") for folder in folders)
    assert not list(bases[1].iterdir())


def test_a_folder_depends_on_the_settings_module(monkeypatch: pytest.MonkeyPatch) -> None:
    first = files.site_folder()
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "another.settings")
    assert files.site_folder() != first
    assert "tests" not in first


def test_temporary_files_where_memory_may_not_be_written(
    make: Callable[..., LmdbDict], bases: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MEMORY_FOLDER", bases[0] / "missing")
    make(path=None).set("k", "v")
    assert [path.name for path in bases[1].iterdir()] == [files.site_folder()]


def test_temporary_files_where_memory_has_no_space(
    make: Callable[..., LmdbDict],
    bases: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    free = os.statvfs("/")

    class Little:
        f_bavail, f_frsize = 100, 4096

    monkeypatch.setattr(os, "statvfs", lambda path: Little if str(path).startswith(str(bases[0])) else free)
    dictionary = make(path=None)
    dictionary.set("k", "v")
    assert {path.name for path in (bases[0] / files.site_folder()).iterdir()} == {"one.card"}
    (warning,) = dictionary.warnings()
    dictionary.close()
    with override_settings(RESTY_DJANGO={"SHARED_DICTS": {"one": {"SIZE": MIB}}}):
        (found,) = (finding for finding in probe() if finding.subject == "dictionary one")
        shdicts.close_all()
    assert (found.level, warning in found.message) == ("warning", True)
    assert f"is not in {bases[0]}" in warning
    assert [text for record in caplog.records if "one" in (text := record.getMessage())] == [
        f'RESTY_DJANGO["SHARED_DICTS"]["one"]: {warning}'
    ]
    assert (bases[1] / files.site_folder() / "one.mdb").stat().st_size == MIB
    dictionary.close()
    monkeypatch.undo()
    monkeypatch.setattr(files, "MEMORY_FOLDER", bases[0])
    assert dictionary.get("k") == "v"


# --- the manifest ---


def test_another_size_is_refused_while_others_run(make: Callable[..., LmdbDict], folder: Path) -> None:
    dictionary = make()
    dictionary.set("k", "v")
    done = in_another_process(folder, 2 * MIB, "one.get('k')")
    assert (
        f"SizeChanged: Running processes use {SETTING} with SIZE 1048576, but the setting is now 2097152."
        in done.stderr
    )
    assert "Stop all of them before you start any with the new size" in done.stderr
    assert dictionary.get("k") == "v"
    done = in_another_process(folder, MIB, "assert one.get('k') == 'v'")
    assert done.returncode == 0, done.stderr


def test_another_size_without_running_processes_empties_the_dictionary(
    make: Callable[..., LmdbDict], folder: Path
) -> None:
    dictionary = make()
    dictionary.set("k", "v")
    dictionary.close()
    two = make(size=2 * MIB)
    assert two.get("k") is None
    assert two.capacity() == (folder / "one.mdb").stat().st_size == 2 * MIB
    two.set("k", "w")
    with pytest.raises(SizeChanged):
        dictionary.get("k")
    two.close()
    assert dictionary.get("k") is None
    assert dictionary.set("new", 1)
    check(dictionary)


@pytest.mark.parametrize("changes", [{"boot": "another boot"}, {"layout": 0}, {"layout": 99}])
def test_files_of_an_earlier_boot_or_layout_are_not_read(
    make: Callable[..., LmdbDict], folder: Path, changes: dict[str, Any]
) -> None:
    dictionary = make()
    dictionary.set("k", "v")
    dictionary.flush_all()
    dictionary.close()
    rewrite(folder, **changes)
    assert dictionary.get_stale("k") is None
    assert manifest(folder)["boot"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    dictionary.set("k", "w")
    assert dictionary.get("k") == "w"


def test_processes_of_another_layout_are_not_disturbed(make: Callable[..., LmdbDict], folder: Path) -> None:
    dictionary = make()
    dictionary.set("k", "v")
    rewrite(folder, layout=99)
    done = in_another_process(folder, MIB, "one.get('k')")
    assert "Unavailable: Running processes of another version use the file of" in done.stderr
    assert dictionary.get("k") == "v"


def test_a_manifest_that_was_overwritten_while_others_run(make: Callable[..., LmdbDict], folder: Path) -> None:
    dictionary = make()
    dictionary.set("k", "v")
    text = (folder / "one.card").read_text()
    (folder / "one.card").write_text("spoilt")
    begin = "from resty_django.shdict.lmdb import files; files.MAX_OPEN_TRIES = 5\n"
    done = in_another_process(folder, MIB, f"{begin}one.get('k')")
    assert "Unavailable: Running processes use" in done.stderr
    assert "was overwritten. Stop them all first" in done.stderr
    (folder / "one.card").write_text(text)
    assert in_another_process(folder, MIB, "assert one.get('k') == 'v'").returncode == 0
    assert dictionary.get("k") == "v"


@pytest.mark.parametrize("text", ["", "{", "null", "[1]", '{"size": 1048576}', "\0\0\0", '{"size": 5, "data": "/x"}'])
def test_a_manifest_that_its_writer_did_not_finish(make: Callable[..., LmdbDict], folder: Path, text: str) -> None:
    dictionary = make()
    dictionary.set("k", "v")
    dictionary.close()
    (folder / "one.card").write_text(text)
    assert dictionary.get("k") is None
    dictionary.set("k", "w")
    dictionary.close()
    assert dictionary.get("k") == "w"


@pytest.mark.parametrize("name", ["one.mdb", "one.mdb-lock", "one.mdb-flushes"])
def test_files_that_somebody_removed_are_created_again(make: Callable[..., LmdbDict], folder: Path, name: str) -> None:
    dictionary = make()
    dictionary.set("k", "v")
    dictionary.close()
    (folder / name).unlink()
    dictionary.set("new", "w")
    assert dictionary.get("new") == "w"
    dictionary.flush_all()
    assert dictionary.get("new") is None
    check(dictionary)


def test_a_truncated_file_is_created_again(make: Callable[..., LmdbDict], folder: Path) -> None:
    dictionary = make()
    dictionary.set("k", "v")
    dictionary.close()
    os.truncate(folder / "one.mdb", MIB // 2)
    assert dictionary.get("k") is None
    assert dictionary.set("k", "x" * 300_000)


def test_a_process_killed_during_creation_leaves_it_to_the_next(make: Callable[..., LmdbDict], folder: Path) -> None:
    code = (
        "import os, signal\n"
        "from resty_django.shdict.lmdb import environment\n"
        "real = environment._environment\n"
        "def dies(*args):\n"
        "    os.kill(os.getpid(), signal.SIGKILL) if os.path.getsize(str(args[0]) + '-lock') and {when} else None\n"
        "    return real(*args)\n"
        "environment._environment = dies\n"
        "one.get('k')\n"
    )
    for when in ("not os.path.exists(args[0])", "os.path.exists(args[0])"):
        done = in_another_process(folder, MIB, code.replace("{when}", when))
        assert done.returncode == -9, done.stderr
        assert (folder / "one.card").read_text() == ""
    dictionary = make()
    assert dictionary.set("k", "v")
    assert len(list(folder.iterdir())) == 4
    check(dictionary)


def test_processes_that_start_together_create_the_file_once(folder: Path) -> None:
    code = "import sys; one.incr('n', 1, init=0); sys.stdin.readline()"
    begin = "from resty_django.shdict.lmdb import LmdbDict\n"
    running = [
        processes.Process(
            [sys.executable, "-c", f"{begin}one = LmdbDict('one', {4 * MIB}, {str(folder)!r})\n{code}"],
            env={**os.environ, "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "project.settings"},
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    for process in running:
        _, error = process.communicate("\n", timeout=60)
        assert not error
    dictionary = LmdbDict("one", 4 * MIB, str(folder))
    assert dictionary.get("n") == 6
    dictionary.close()


# --- no room ---


@pytest.fixture
def little(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    mount = ctypes.CDLL(None, use_errno=True)
    folder = tmp_path / "little"
    folder.mkdir(mode=0o700)
    if mount.mount(b"tmpfs", str(folder).encode(), b"tmpfs", 0, b"size=2m,mode=0700"):
        pytest.skip(f"cannot mount a tmpfs: {os.strerror(ctypes.get_errno())}; run the tests as root")
    yield folder
    mount.umount2(str(folder).encode(), 2)


def test_no_space_for_the_file_is_an_error(make: Callable[..., LmdbDict], little: Path) -> None:
    dictionary = make(size=4 * MIB, path=str(little))
    for _ in range(2):
        with pytest.raises(DiskFull) as caught:
            dictionary.get("k")
        assert f"There is no space for {SETTING} of 4194304 bytes in {little}" in str(caught.value)
        assert "Reduce SIZE, or set PATH to a folder with more free space." in str(caught.value)
        assert [path.name for path in little.iterdir()] == ["one.card"]
        assert os.statvfs(little).f_bavail * 4096 >= 2 * MIB - 65536
    small = make(path=str(little))
    assert small.set("k", "v")


def test_no_space_at_all_is_an_error(make: Callable[..., LmdbDict], little: Path) -> None:
    (little / "full").write_bytes(bytes(2 * MIB))
    with pytest.raises(DiskFull):
        make(path=str(little)).get("k")


def test_no_space_in_memory_nor_for_temporary_files(
    make: Callable[..., LmdbDict], little: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MEMORY_FOLDER", little)
    monkeypatch.setattr(files.tempfile, "gettempdir", lambda: str(little))
    with pytest.raises(DiskFull):
        make(size=4 * MIB, path=None).get("k")


def test_a_file_system_that_fills_up_later_stops_nothing(folder: Path, little: Path) -> None:
    code = (
        "import errno\n"
        "one.set('k', 'v')\n"
        "try:\n"
        f"    open({str(little / 'rest')!r}, 'wb').write(bytes(4 << 20))\n"
        "except OSError as error:\n"
        "    assert error.errno == errno.ENOSPC\n"
        "for number in range(3000):\n"
        "    assert one.set(f'k{number}', 'x' * 2000)\n"
        "    one.incr('n', 1, init=0)\n"
        "one.flush_all()\n"
        "assert one.get('n') is None\n"
        "one.close()\n"
        "assert one.incr('n', 1, init=0) == 1\n"
        "print('done', one.stats().forcible > 1000)\n"
    )
    done = in_another_process(little, MIB, code)
    assert (done.returncode, done.stdout) == (0, "done True\n"), done.stderr
