"""`keyhouse explain`: keys, the nearest template of an invalid key, and stored rows."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from keyhouse import ManualClock, Store, open_engine
from keyhouse.cli.commands.explain import read_key, read_stored
from keyhouse.cli.output import Part, Report, show_reports, visible
from keyhouse.cli.spaces import Target, schemas_with
from keyhouse.demo.clips import BOARD, CLIP, ON_SCREEN, fill
from keyhouse.engine import Batch, Put
from keyhouse.errors import KeyFieldError, UsageError
from keyhouse.schema import Record, RecordCount, Schema, Space, Summary, Unique
from keyhouse.schema.explanation import RelatedKey, explain, nearest
from keyhouse.service.stored_row import StoredRow
from tests.support.program import run

BOARD_NAME = "keyhouse.demo.clips:BOARD"


class Pick(Struct):
    shop: str
    id: str
    kind: str
    secret: str = ""


PICK = Record(
    Pick,
    "{shop}/pick/{id}",
    Unique("{shop}/kind/{kind}", value="id"),
    Summary("{shop}/list/{kind}", member="id", under="ids"),
    RecordCount("{shop}/count/{kind}"),
    private=("secret",),
)
SHOP = Schema("shop", PICK, space=Space("a shop", field="shop"))
ONE = Schema("one", Record(int, "one", name="one"), space=Space("a bucket", name="bucket-1"))
PLACED = Schema(
    "placed", Record(int, "{place}/one", name="one"), space=Space("a shop"), fixed={"place": "main"}
)


# Keys


def test_a_record_has_its_fields_and_derived_rows() -> None:
    found = explain(BOARD, "clip:a:b")
    assert found is not None
    assert (found.kind, found.record, found.template) == ("record", "clip", "clip:{id}")
    assert [(field.name, field.value, field.type) for field in found.fields] == [
        ("id", "a:b", "text")
    ]
    assert found.derived == [
        RelatedKey("index", "idx:clip:second:{second}:a:b"),
        RelatedKey("index", "idx:clip:tag:{tag}:a:b"),
        RelatedKey("unique", "idx:clip:title:{title}"),
    ]
    assert found.record_key is None


def test_an_index_row_has_its_record() -> None:
    found = explain(BOARD, "idx:clip:second:000754:goal")
    assert found is not None
    assert (found.kind, found.record_key, found.fields_in_value) == ("index", "clip:goal", [])
    assert {field.name: field.value for field in found.fields} == {"second": 754, "id": "goal"}


@pytest.mark.parametrize(
    ("key", "held"), [("a/kind/b", ["id"]), ("a/list/b", ["id"]), ("a/count/b", [])]
)
def test_fields_in_a_derived_rows_value_are_listed(key: str, held: list[str]) -> None:
    found = explain(SHOP, key)
    assert found is not None
    assert (found.record_key, found.fields_in_value) == ("a/pick/{id}", held)


def test_a_key_that_matches_no_template_has_no_explanation() -> None:
    assert explain(BOARD, "clips:goal") is None


# Keys that match no template


@pytest.mark.parametrize(
    ("key", "template", "why"),
    [
        ("clips:goal", "clip:{id}", "its keys start with `clip:`"),
        ("clip:", "clip:{id}", "it continues with `id`"),
        ("screen2", "screen", "it ends before `2`"),
        (
            "idx:clip:tag:goal",
            "idx:clip:tag:{tag:norm}:{id}",
            "after `tag` it has `:`, which the key does not",
        ),
        (
            "idx:clip:second:12:goal",
            "idx:clip:second:{second:06d}:{id}",
            "its field `second` is a whole number in 6 digits, and `12` is not",
        ),
        (
            "idx:clip:tag:Goal:x",
            "idx:clip:tag:{tag:norm}:{id}",
            "its field `tag` is text in its normal form, and `Goal` is not",
        ),
        ("xyz", "clip:{id}", "its keys start with `clip:`"),
    ],
)
def test_an_invalid_key_gets_the_nearest_template_and_the_reason(
    key: str, template: str, why: str
) -> None:
    closest = nearest([BOARD], key)[0]
    assert (closest.template, closest.why) == (template, why)


def test_a_key_unlike_any_template_gets_a_few_templates() -> None:
    assert len(nearest([BOARD], "?")) == 3
    assert len(nearest([BOARD], "clips")) == 1


# Spaces


def test_a_space_selects_the_schemas_that_accept_it() -> None:
    assert schemas_with([BOARD, ONE], None) == [BOARD, ONE]
    assert schemas_with([BOARD, ONE], "bucket-1") == [BOARD, ONE]
    assert schemas_with([BOARD, ONE], "other") == [BOARD]
    with pytest.raises(KeyFieldError, match="The schema has only one space"):
        schemas_with([ONE], "other")


def test_a_key_of_another_space_is_rejected() -> None:
    found, misses = read_key([SHOP], "a/pick/b", "other", None)
    assert found == []
    assert misses[0].why == "the key belongs to the space `a`, not `other`"


def test_the_space_is_read_from_the_key() -> None:
    assert read_key([SHOP], "a/pick/b", None, None)[0][0].space == "a"
    assert read_key([ONE], "one", None, None)[0][0].space == "bucket-1"
    assert read_key([BOARD], "clip:a", None, None)[0][0].space is None


def test_reading_a_row_needs_its_space() -> None:
    with pytest.raises(UsageError, match="--space"):
        read_key([BOARD], "clip:a", None, "memory:")


# Stored rows


def stored_in(
    tmp_path: Path, schema: Schema, work: Callable[[Store], Awaitable[object]], **fixed: Any
) -> str:
    """Run the work on a store in a SQLite file, and return its URL."""
    url = f"sqlite:{tmp_path / 'test.db'}"

    async def main() -> None:
        engine = await open_engine(url)
        await work(Store(schema, engine, "a", **fixed))
        await engine.close()

    asyncio.run(main())
    return url


def stored_at(schema: Schema, url: str, key: str) -> StoredRow | None:
    return asyncio.run(read_stored(Target(schema, "a"), url, key))


def test_a_record_has_its_revision_and_derived_rows(tmp_path: Path) -> None:
    stored = stored_at(BOARD, stored_in(tmp_path, BOARD, fill), "clip:kick-off")
    assert stored is not None
    assert (stored.revision, stored.expires, stored.seconds_left) == (2, None, None)
    assert stored.value["title"] == "Kick-off"
    assert [(row.key, row.state) for row in stored.neighbours] == [
        ("idx:clip:second:000012:kick-off", "present"),
        ("idx:clip:tag:replay:kick-off", "present"),
        ("idx:clip:title:kick-off", "present"),
    ]


def test_missing_and_wrong_derived_rows_are_reported(tmp_path: Path) -> None:
    async def break_them(store: Store) -> None:
        await fill(store)
        batch = Batch(
            puts=(Put("idx:clip:title:kick-off", b'"goal"'),),
            deletes=("idx:clip:second:000012:kick-off",),
        )
        await store.engine.commit("a", batch)

    stored = stored_at(BOARD, stored_in(tmp_path, BOARD, break_them), "clip:kick-off")
    assert stored is not None
    assert [row.state for row in stored.neighbours] == ["missing", "present", "wrong"]


def test_a_private_member_is_never_printed_even_through_an_index(tmp_path: Path) -> None:
    async def put(store: Store) -> None:
        await store.put(PICK, Pick("a", "b", "c", secret="hush"))

    url = stored_in(tmp_path, SHOP, put)
    for key in ("a/pick/b", "a/kind/c", "a/list/c"):
        stored = stored_at(SHOP, url, key)
        assert stored is not None and "hush" not in repr(stored)
        assert (
            "hush"
            not in run(
                "explain", f"{__name__}:SHOP", key, "--store", url, cwd=Path(__file__).parents[2]
            ).stdout
        )


def test_a_derived_row_has_its_records(tmp_path: Path) -> None:
    async def put(store: Store) -> None:
        await store.put(PICK, Pick("a", "b", "c"))
        await store.engine.commit("a", Batch(puts=(Put("a/list/c", b'{"ids":["b","gone"]}'),)))

    stored = stored_at(SHOP, stored_in(tmp_path, SHOP, put), "a/list/c")
    assert stored is not None
    assert stored.value == {"ids": ["b", "gone"]}
    assert [(near.key, near.state) for near in stored.neighbours] == [
        ("a/pick/b", "present"),
        ("a/pick/gone", "missing"),
    ]
    count = stored_at(SHOP, f"sqlite:{tmp_path / 'test.db'}", "a/count/c")
    assert count is not None
    assert (count.value, count.neighbours) == (1, [])


@pytest.mark.parametrize(
    ("key", "value"), [("a/pick/b", b"[]"), ("a/list/c", b"7"), ("a/pick/b", b"not JSON")]
)
def test_an_unreadable_row_has_the_reason_and_no_value(
    tmp_path: Path, key: str, value: bytes
) -> None:
    async def spoil(store: Store) -> None:
        await store.engine.commit("a", Batch(puts=(Put(key, value),)))

    stored = stored_at(SHOP, stored_in(tmp_path, SHOP, spoil), key)
    assert stored is not None
    assert stored.unreadable and stored.value is None


def test_a_damaged_summary_of_a_record_is_unreadable(tmp_path: Path) -> None:
    async def spoil(store: Store) -> None:
        await store.put(PICK, Pick("a", "b", "c"))
        await store.engine.commit("a", Batch(puts=(Put("a/list/c", b"7"),)))

    stored = stored_at(SHOP, stored_in(tmp_path, SHOP, spoil), "a/pick/b")
    assert stored is not None
    assert [near.state for near in stored.neighbours] == ["present", "unreadable", "present"]


def test_the_remaining_ttl_is_printed(tmp_path: Path) -> None:
    async def put(store: Store) -> None:
        await store.put(ON_SCREEN, "goal")

    url = stored_in(tmp_path, BOARD, put)
    stored = stored_at(BOARD, url, "screen")
    assert stored is not None and stored.seconds_left is not None
    assert 0 <= stored.seconds_left <= 30
    assert (
        "left, until 20"
        in run("explain", BOARD_NAME, "screen", "--store", url, "--space", "a").stdout
    )


def test_a_fixed_field_is_read_from_the_key(tmp_path: Path) -> None:
    async def put(store: Store) -> None:
        await store.put(PLACED.records[0], 7)

    url = stored_in(tmp_path, PLACED, put, place="side")
    found, _ = read_key([PLACED], "side/one", "a", url)
    assert found[0].stored is not None and found[0].stored.value == 7
    found, _ = read_key([PLACED], "main/one", "a", url)
    assert found[0].looked and found[0].stored is None


def test_an_expired_row_is_not_found(tmp_path: Path) -> None:
    async def main() -> None:
        engine = await open_engine(f"sqlite:{tmp_path / 'test.db'}", clock=ManualClock(0))
        await Store(BOARD, engine, "a").put(ON_SCREEN, "goal")
        await engine.close()

    asyncio.run(main())
    assert stored_at(BOARD, f"sqlite:{tmp_path / 'test.db'}", "screen") is None


# Output


def test_explain_prints_a_record_with_its_row(tmp_path: Path) -> None:
    url = stored_in(tmp_path, BOARD, fill)
    shown = run("explain", BOARD_NAME, "clip:goal", "--store", url, "--space", "a").stdout
    for line in (
        "clip:goal",
        "The record `clip` in the space `a`.",
        "  template  clip:{id}",
        "  id  goal  text",
        "  revision  1",
        "  TTL       none",
        "  index   idx:clip:tag:replay:goal     present",
        "  unique  idx:clip:title:what a goal!  present",
    ):
        assert line in shown.splitlines()


def test_explain_prints_the_record_of_a_derived_row() -> None:
    shown = run("explain", BOARD_NAME, "idx:clip:title:kick-off").stdout
    assert "A derived row (unique) of the record `clip`." in shown
    assert "  clip  clip:{id}  with `id` from the row's value" in shown.splitlines()


def test_explain_reports_that_nothing_is_stored(tmp_path: Path) -> None:
    url = stored_in(tmp_path, BOARD, fill)
    shown = run("explain", BOARD_NAME, "clip:none", "--store", url, "--space", "a").stdout
    assert "no row at this key, or it expired" in shown


def test_explain_exits_with_1_for_a_key_that_matches_no_template() -> None:
    ran = run("explain", BOARD_NAME, "clips:goal", code=1)
    assert "The key matches no template." in ran.stdout
    assert "  clip:{id}  its keys start with `clip:`" in ran.stdout.splitlines()
    answer = json.loads(run("explain", BOARD_NAME, "clips:goal", "--json", code=1).stdout)
    assert answer["found"] == []
    assert answer["nearest"][0]["template"] == "clip:{id}"


def test_explain_prints_json(tmp_path: Path) -> None:
    url = stored_in(tmp_path, BOARD, fill)
    answer = json.loads(
        run("explain", BOARD_NAME, "clip:goal", "--store", url, "--space", "a", "--json").stdout
    )
    [reading] = answer["found"]
    assert reading["explanation"]["fields"] == [
        {"name": "id", "type": "text", "source": "", "value": "goal"}
    ]
    assert reading["stored"]["revision"] == 1
    assert answer["nearest"] == []


@pytest.mark.parametrize("key", ["", "a" * 1_025])
def test_explain_rejects_an_invalid_key(key: str) -> None:
    assert "A key has 1 to 1,024 bytes" in run("explain", BOARD_NAME, key, code=1).stderr


def test_control_characters_are_printed_as_escapes() -> None:
    assert visible("a\x1b[31m\u202eb\u200b\nc") == "a\\x1b[31m\\u202eb\\u200b\nc"
    assert "\x1b" not in run("explain", BOARD_NAME, "clip:\x1b[31mred").stdout


def test_output_on_a_terminal_is_coloured(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    report = Report(
        "clip:\x1b",
        "The record `clip`.",
        [Part("Fields", [("id", "`goal`", "text")]), Part("None", [])],
    )
    show_reports([report, report])
    shown = capsys.readouterr().out
    for word in ("clip:\\x1b", "The record ", "Fields", "goal"):
        assert shown.count(word) >= 2
    assert "None" not in shown
    assert CLIP.name in shown


def test_a_key_is_explained_beside_a_data_folder_without_its_system(tmp_path: Path) -> None:
    """The folder is the default store, and `explain` ended with an error: it has no such file."""
    (tmp_path / "keyhouse-data").mkdir()
    command = ("explain", "rosey", "theme", "--space", "trivia")
    assert "The record `value`" in run(*command, cwd=tmp_path).stdout
    named = run(*command, "--store", "keyhouse-data", cwd=tmp_path, code=1)
    assert "The file does not exist" in named.stderr
