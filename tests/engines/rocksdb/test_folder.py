"""The owner and the lock of a RocksDB folder: foreign folders are left unchanged."""

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict

from keyhouse.engine import Add, Batch, Put, Row, Span
from keyhouse.engines.rocksdb import RocksdbEngine
from keyhouse.engines.rocksdb.encoding import FORMAT
from keyhouse.errors import (
    ClosedError,
    CounterError,
    KeyhouseError,
    LockedError,
    NewerError,
    UnavailableError,
    UnreadableError,
    UsageError,
)
from tests.engines.support.embedded_engines import unprivileged
from tests.engines.support.rocksdb_databases import contents, families, make, opened, put

ALL = Span()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows"


# Owner


def test_open_creates_the_folder_and_stores_the_format(path: Path) -> None:
    make(path)
    assert contents(path, "meta") == {b"format": b"1"}


def test_open_rejects_a_newer_format_and_changes_nothing(path: Path) -> None:
    make(path, a=b"1")
    with families(path) as found:
        found["meta"][b"format"] = b"%d" % (FORMAT + 1)
    with pytest.raises(NewerError, match="newer Keyhouse") as refusal:
        RocksdbEngine.open(path)
    assert refusal.value.fields["format"] == FORMAT + 1
    assert len(contents(path, "default")) == 1


def test_open_rejects_a_newer_format_with_more_families_and_changes_nothing(path: Path) -> None:
    make(path, a=b"1")
    with families(path) as found:
        found["meta"][b"format"] = b"9"
        found["default"].create_column_family("newer", Options(raw_mode=True)).close()
    before = {entry.name for entry in path.iterdir()}
    with pytest.raises(NewerError):
        RocksdbEngine.open(path)
    assert {entry.name for entry in path.iterdir()} == before


def test_an_unreadable_format_is_reported(path: Path) -> None:
    make(path, a=b"1")
    with families(path) as found:
        found["meta"][b"format"] = b"?"
    with pytest.raises(UnreadableError, match="format"):
        RocksdbEngine.open(path)


def test_open_rejects_a_database_of_another_program_and_changes_nothing(path: Path) -> None:
    other = Rdict(str(path), Options(raw_mode=True))
    other[b"theirs"] = b"1"
    other.close()
    before = {entry.name: entry.read_bytes() for entry in path.iterdir()}
    with pytest.raises(UsageError, match="another program"):
        RocksdbEngine.open(path)
    assert {entry.name: entry.read_bytes() for entry in path.iterdir()} == before


def test_open_rejects_a_folder_with_other_files_and_changes_nothing(path: Path) -> None:
    path.mkdir()
    (path / "letter.txt").write_text("dear")
    with pytest.raises(UsageError, match="other files") as refusal:
        RocksdbEngine.open(path)
    assert refusal.value.fields["found"] == ["letter.txt"]
    assert [entry.name for entry in path.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("made", [[], ["meta"], ["expiry", "changes"]])
def test_a_folder_whose_creation_was_killed_is_created_again(path: Path, made: list[str]) -> None:
    database = Rdict(str(path), Options(raw_mode=True))
    for name in made:
        database.create_column_family(name, Options(raw_mode=True)).close()
    database.close()
    make(path, a=b"1")
    assert len(contents(path, "default")) == 1


def test_an_empty_folder_is_used(path: Path) -> None:
    path.mkdir()
    make(path, a=b"1")


@pytest.mark.parametrize("where", ["missing/rows", "file/rows", "file"])
def test_the_error_for_an_invalid_folder_names_it_and_a_fix(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match="must exist") as refusal:
        RocksdbEngine.open(tmp_path / where)
    assert refusal.value.fields["folder"] == str(tmp_path / where)


@pytest.mark.parametrize("present", [False, True])
def test_the_error_for_a_read_only_folder_names_it_and_a_fix(present: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows"
        if present:
            make(path, a=b"1")
            path.chmod(0o555)
        Path(folder).chmod(0o555)
        with unprivileged(), pytest.raises(UnavailableError, match="writable for this user"):
            RocksdbEngine.open(path)
        Path(folder).chmod(0o700)


# One process


def test_a_second_engine_of_the_same_process_is_rejected(path: Path) -> None:
    async def scenario() -> None:
        async with opened(path) as engine:
            with pytest.raises(LockedError, match="close it there, or move") as refusal:
                RocksdbEngine.open(path)
            assert refusal.value.fields["folder"] == str(path)
            await put(engine, "a")
        async with opened(path) as engine:
            assert await engine.read("s", ["a"]) == [Row("a", b"1", 1)]

    asyncio.run(scenario())


def test_a_second_process_is_rejected(path: Path) -> None:
    program = (
        "import sys\nfrom keyhouse.engines.rocksdb import RocksdbEngine\n"
        "from keyhouse.errors import LockedError\n"
        "try:\n    RocksdbEngine.open(sys.argv[1])\n"
        "except LockedError as error:\n    print(error)\n"
    )

    async def scenario() -> None:
        async with opened(path):
            source = str(Path(__file__).parents[3] / "src")
            ran = subprocess.run(
                [sys.executable, "-c", program, str(path)],
                env=os.environ | {"PYTHONPATH": source},
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert "already open" in ran.stdout and str(path) in ran.stdout

    asyncio.run(scenario())


def test_close_releases_the_folder_whatever_is_still_referenced(path: Path) -> None:
    """A referenced driver object keeps the lock: an unfinished scan, an error's traceback."""

    async def scenario() -> None:
        engine = RocksdbEngine.open(path)
        await put(engine, *(f"k{number}" for number in range(10)), value=b"null")
        held: list[Any] = [await engine.scan("s", ALL, limit=2)]
        spaces = engine.spaces()
        held += [await anext(spaces), spaces]
        watch = engine.watch("s", ALL, since=0)
        held += [await anext(watch), watch]
        for wrong in (Batch(adds=(Add("k1", 1),)), Batch(puts=(Put("\ud800", b"1"),))):
            with pytest.raises((CounterError, UnicodeEncodeError)) as refusal:
                await engine.commit("s", wrong)
            held.append(refusal)
        with pytest.raises(UnicodeEncodeError) as refused:
            await engine.scan("s", Span("\ud800"), limit=1)
        held.append(refused)
        await engine.close()
        async with opened(path) as again:
            assert len((await again.scan("s", ALL, limit=100)).rows) == 10

    asyncio.run(scenario())


def test_a_closed_engine_does_not_reopen_itself(path: Path) -> None:
    async def scenario() -> None:
        engine = RocksdbEngine.open(path)
        await engine.close()
        with pytest.raises(ClosedError):
            await engine.read("s", ["a"])
        async with opened(path):
            pass

    asyncio.run(scenario())


def test_an_error_names_the_cause_and_the_folder(path: Path) -> None:
    path.touch()
    with pytest.raises(KeyhouseError) as refusal:
        RocksdbEngine.open(path)
    assert str(path) in str(refusal.value)
    assert isinstance(refusal.value.__cause__, Exception)
