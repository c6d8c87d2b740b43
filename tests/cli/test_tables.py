"""`keyhouse tables`: status, upgrade and downgrade of files and databases with rows."""

import asyncio
import json
from pathlib import Path

import apsw
import pytest

from keyhouse import open_engine
from keyhouse.engine import Batch, Put, Row
from tests.support.engine_openers import OPENERS, postgres_schema
from tests.support.program import run

KINDS = ["sqlite", "sqlite?layout=rosey"] + (
    ["postgres", "postgres?layout=rosey"] if "postgres" in OPENERS else []
)


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    kind, _, query = request.param.partition("?")
    if kind == "sqlite":
        return f"sqlite:{tmp_path}/rows.db{'?' if query else ''}{query}"
    return f"{asyncio.run(postgres_schema())}{'&' if query else ''}{query}"


def put_and_read(url: str, *, create: bool) -> list[Row | None]:
    async def scenario() -> list[Row | None]:
        engine = await open_engine(url, create=create)
        await engine.commit("s", Batch(puts=(Put("a", b"1"),)))
        rows = await engine.read("s", ["a"])
        await engine.close()
        return rows

    return asyncio.run(scenario())


def test_tables_with_rows_are_upgraded_and_downgraded(url: str) -> None:
    assert run("tables", "status", url).stdout == "There are no tables.\n"
    assert run("tables", "upgrade", url).stdout == "The tables are at version 0001; before: none.\n"
    assert put_and_read(url, create=False) == [Row("a", b"1", 1)]
    assert run("tables", "upgrade", url).stdout == "The tables are at version 0001.\n"
    assert (
        run("tables", "downgrade", url, "--dry-run").stdout
        == "The tables would be dropped; before: 0001.\n"
    )
    assert "Confirmation needs a terminal" in run("tables", "downgrade", url, code=1).stderr
    assert put_and_read(url, create=False) == [Row("a", b"1", 2)]
    assert json.loads(run("tables", "downgrade", url, "--yes", "--json").stdout) == {
        "before": "0001",
        "after": None,
        "dry_run": False,
    }
    assert run("tables", "status", url).stdout == "There are no tables.\n"
    assert run("tables", "downgrade", url).stdout == "There are no tables.\n"


def test_an_unknown_version_is_rejected(url: str) -> None:
    for way in ("upgrade", "downgrade"):
        for dry_run in ((), ("--dry-run",)):
            refused = run("tables", way, url, "--to", "9999", *dry_run, code=1).stderr
            assert "Unknown version of the tables." in refused
            assert "'0001'" in refused


def test_status_creates_nothing(tmp_path: Path) -> None:
    for way in ("status", "downgrade"):
        run("tables", way, f"sqlite:{tmp_path}/rows.db")
    assert list(tmp_path.iterdir()) == []


def test_tables_of_a_newer_keyhouse_are_rejected_and_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "rows.db"
    run("tables", "upgrade", f"sqlite:{path}")
    file = apsw.Connection(str(path))
    file.execute("UPDATE rows_version SET version_num = '0999'")
    before = file.execute("SELECT name, sql FROM sqlite_schema").fetchall()
    for arguments in (("upgrade",), ("downgrade", "--yes")):
        refused = run("tables", arguments[0], f"sqlite:{path}", *arguments[1:], code=1).stderr
        assert (
            "A newer Keyhouse created the tables; use that version. (version='0999', known='0001')"
            in refused
        )
    assert file.execute("SELECT name, sql FROM sqlite_schema").fetchall() == before
    file.close()


def test_an_engine_without_tables_is_rejected() -> None:
    assert (
        "Only the SQL engines have table migrations"
        in run("tables", "status", "memory:", code=1).stderr
    )
