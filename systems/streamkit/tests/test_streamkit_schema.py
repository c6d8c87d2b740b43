"""Streamkit's keyspace: the keys and values of its document, customers that never meet, and configs
through their life."""

from itertools import combinations
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keyhouse.clock import ManualClock
from keyhouse.engine import Engine
from keyhouse.errors import KeyFieldError, RecordError, UnreadableError, UsageError
from keyhouse.keys import proof
from keyhouse.schema import Record
from keyhouse.store import Store
from keyhouse_streamkit.keys import CATEGORIES, build_kv_key, parse_kv_key
from keyhouse_streamkit.schema import (
    CONFIGS,
    LAYOUT,
    NOTE,
    SCENE_ACTIVITY,
    SCHEMAS,
    SWAP,
    TEXT_CYCLER,
    Layout,
    Note,
    SceneActivity,
    TextCycler,
)
from tests.support.store_driver import Drive, holds, value_round_trips

[SCHEMA] = SCHEMAS

KEYS = [
    ("cust_12345_streamkit_text-cyclers_config1", "12345", "text-cyclers", "config1"),
    (
        "cust_12345_streamkit_text-cyclers_my-custom-cycler",
        "12345",
        "text-cyclers",
        "my-custom-cycler",
    ),
    ("cust_12345_streamkit_swaps_swap1", "12345", "swaps", "swap1"),
    ("cust_12345_streamkit_swaps_camera-gameplay-swap", "12345", "swaps", "camera-gameplay-swap"),
    ("cust_12345_streamkit_layouts_layout1", "12345", "layouts", "layout1"),
    ("cust_12345_streamkit_layouts_gaming-4cam", "12345", "layouts", "gaming-4cam"),
    ("cust_12345_streamkit_notes_note1", "12345", "notes", "note1"),
    ("cust_12345_streamkit_notes_stream-ideas", "12345", "notes", "stream-ideas"),
    ("cust_12345_streamkit_scene_activity_Gaming Scene", "12345", "scene_activity", "Gaming Scene"),
    ("cust_12345_streamkit_scene_activity_BRB Scene", "12345", "scene_activity", "BRB Scene"),
    (
        "cust_12345_streamkit_scene_activity_Just Chatting",
        "12345",
        "scene_activity",
        "Just Chatting",
    ),
    ("cust_67890_streamkit_text-cyclers_config1", "67890", "text-cyclers", "config1"),
    ("cust_67890_streamkit_swaps_swap1", "67890", "swaps", "swap1"),
    ("cust_67890_streamkit_scene_activity_Gaming Scene", "67890", "scene_activity", "Gaming Scene"),
    ("cust_12345_streamkit_text-cyclers_main-cycler", "12345", "text-cyclers", "main-cycler"),
    ("cust_12345_streamkit_swaps_cam-to-gameplay", "12345", "swaps", "cam-to-gameplay"),
    ("cust_12345_streamkit_layouts_4cam-gaming", "12345", "layouts", "4cam-gaming"),
    ("cust_12345_streamkit_notes_stream-schedule", "12345", "notes", "stream-schedule"),
    # "Bad keys" of the document that are bad by custom only: a name can be long, or a customer's,
    # and yet be one.
    (
        "cust_12345_streamkit_layouts_this-is-a-very-long-layout-name-that-should-be-shortened",
        "12345",
        "layouts",
        "this-is-a-very-long-layout-name-that-should-be-shortened",
    ),
    ("cust_12345_streamkit_notes_johns-note", "12345", "notes", "johns-note"),
]

FOREIGN_KEYS = [
    "invalid_key",
    "cust_12345_streamkit_text cyclers_config 1",
    "cust_12345_streamkit_swaps/config?id=1",
    "cust_12345_streamkit_swaps_config?id=1",
    "cust_12345_streamkit_notes_",
    "cust__streamkit_notes_a",
    "cust_12345_streamkit_unknown_a",
    "cust_12345_streamkit_v2_notes_a",
    "cust_12_streamkit_notes_streamkit_swaps/a",
    "xcust_12345_streamkit_notes_a",
    "cust_12345_streamkit_notes_a\n",
    "",
]

VALUES: list[tuple[Record[Any], dict[str, Any]]] = [
    (
        TEXT_CYCLER,
        {
            "id": "config1",
            "name": "My Text Cycler",
            "textLines": ["Line 1", "Line 2", "Line 3"],
            "cycleDuration": 5000,
            "transition": "fade",
            "transDuration": 300,
            "styles": {"fontSize": "24px", "color": "#ffffff"},
            "mode": "browser",
            "createdAt": "2026-01-18T12:00:00.000Z",
            "updatedAt": "2026-01-18T12:00:00.000Z",
        },
    ),
    (
        SWAP,
        {
            "id": "swap1",
            "name": "Camera/Gameplay Swap",
            "sourceA": "Camera",
            "sourceB": "Gameplay",
            "style": "slide",
            "duration": 400,
            "easing": "ease",
            "preserveAspect": True,
            "createdAt": "2026-01-18T12:00:00.000Z",
            "updatedAt": "2026-01-18T12:00:00.000Z",
        },
    ),
    (
        LAYOUT,
        {
            "id": "layout1",
            "name": "Gaming 4-Cam",
            "scene": "Gaming Scene",
            "sources": [
                {
                    "sourceName": "Camera 1",
                    "positionX": 100,
                    "positionY": 100,
                    "scaleX": 0.5,
                    "scaleY": 0.5,
                },
                {
                    "sourceName": "Camera 2",
                    "positionX": 200,
                    "positionY": 100,
                    "scaleX": 0.5,
                    "scaleY": 0.5,
                },
            ],
            "timestamp": "2026-01-18T12:00:00.000Z",
            "createdAt": "2026-01-18T12:00:00.000Z",
            "updatedAt": "2026-01-18T12:00:00.000Z",
        },
    ),
    (
        NOTE,
        {
            "id": "note1",
            "title": "Stream Ideas",
            "content": "1. Play new game\n2. Chat with viewers\n3. Giveaway",
            "createdAt": "2026-01-18T12:00:00.000Z",
            "updatedAt": "2026-01-18T12:05:00.000Z",
        },
    ),
    (
        SCENE_ACTIVITY,
        {"sceneName": "Gaming Scene", "count": 42, "lastUsed": "2026-01-18T12:00:00.000Z"},
    ),
]


@pytest.mark.parametrize(("key", "customer", "category", "identifier"), KEYS)
def test_every_key_of_the_document_is_built_and_parsed(
    key: str, customer: str, category: str, identifier: str
) -> None:
    assert build_kv_key(customer, category, identifier) == key
    assert parse_kv_key(key) == {
        "customerId": customer,
        "configType": category,
        "configId": identifier,
    }


@pytest.mark.parametrize("key", FOREIGN_KEYS)
def test_a_foreign_key_parses_as_none(key: str) -> None:
    assert parse_kv_key(key) is None


@pytest.mark.parametrize(
    ("customer", "category", "identifier"),
    [
        ("12345", "notes", "config 1"),
        ("12345", "notes", "a/b"),
        ("12345", "notes", "a" * 101),
        ("12345", "notes", ""),
        ("12345", "scene_activity", "a" * 201),
        ("12345", "scene_activity", ""),
        ("12_streamkit_notes", "notes", "a"),
        ("12_streamkit", "notes", "a"),
        ("a" * 65, "notes", "a"),
        ("a b", "notes", "a"),
        ("", "notes", "a"),
    ],
)
def test_an_invalid_key_field_is_rejected(customer: str, category: str, identifier: str) -> None:
    with pytest.raises(KeyFieldError):
        build_kv_key(customer, category, identifier)


def test_an_unknown_category_is_rejected_with_the_known_ones() -> None:
    with pytest.raises(UsageError) as refused:
        build_kv_key("12345", "TextCyclers", "config1")
    known = ["text-cyclers", "swaps", "layouts", "notes", "scene_activity"]
    assert refused.value.fields["known"] == known == list(CATEGORIES)


@pytest.mark.parametrize(("record", "value"), VALUES, ids=[record.name for record, _ in VALUES])
def test_every_value_of_the_document_round_trips(
    record: Record[Any], value: dict[str, Any]
) -> None:
    value_round_trips(record, value)


@pytest.mark.parametrize(
    ("record", "value"), VALUES[:-1], ids=[record.name for record, _ in VALUES[:-1]]
)
def test_unknown_members_are_stored(record: Record[Any], value: dict[str, Any]) -> None:
    value_round_trips(
        record, value | {"extra": 5, "panelVersion": {"major": 2, "scale": 1.0}, "__proto__": None}
    )


def test_a_layout_source_keeps_unknown_members() -> None:
    layout = VALUES[2][1]
    value_round_trips(
        LAYOUT, layout | {"sources": [{"sourceName": "Camera 1", "rotation": 90, "scaleX": 1}]}
    )


@pytest.mark.parametrize(
    ("record", "value", "member"),
    [
        (TEXT_CYCLER, VALUES[0][1] | {"textLines": "Line 1"}, "textLines"),
        (TEXT_CYCLER, VALUES[0][1] | {"mode": "other"}, "mode"),
        (SWAP, VALUES[1][1] | {"preserveAspect": 1}, "preserveAspect"),
        (LAYOUT, VALUES[2][1] | {"sources": [{"sourceName": 1}]}, "sourceName"),
        (LAYOUT, VALUES[2][1] | {"sources": [{}]}, "sourceName"),
        (NOTE, {"id": "note1", "title": "x"}, "content"),
        (NOTE, {"title": "x", "content": "y"}, "id"),
    ],
)
def test_a_member_of_the_wrong_type_is_rejected_by_name(
    record: Record[Any], value: dict[str, Any], member: str
) -> None:
    with pytest.raises(UnreadableError, match=member):
        record.json.decode(msgspec.json.encode(value))


# Customers

WORDS = st.sampled_from(
    [
        "_streamkit_",
        "streamkit",
        "_",
        "notes",
        "swaps",
        "scene_activity",
        "v2",
        "cust_",
        "-",
        "a",
        "1",
    ]
)
CUSTOMERS = (
    st.lists(WORDS, min_size=1, max_size=6).map("".join).filter(lambda text: len(text) <= 64)
)
IDS = (
    st.lists(WORDS | st.sampled_from([".", "~"]), min_size=1, max_size=6)
    .map("".join)
    .filter(lambda t: len(t) <= 100)
)


@given(customer=CUSTOMERS, category=st.sampled_from(sorted(CATEGORIES)), identifier=IDS)
@example(customer="a", category="notes", identifier="b_streamkit_notes_c")
@example(customer="12", category="notes", identifier="streamkit_notes_a")
def test_a_key_parses_to_its_customer_for_any_customer_and_id(
    customer: str, category: str, identifier: str
) -> None:
    try:
        key = build_kv_key(customer, category, identifier)
    except KeyFieldError:
        assert "_streamkit_" in customer + "_"
        return
    assert parse_kv_key(key) == {
        "customerId": customer,
        "configType": category,
        "configId": identifier,
    }


@given(one=CUSTOMERS, other=CUSTOMERS, identifier=IDS, category=st.sampled_from(sorted(CATEGORIES)))
@example(one="12", other="12_streamkit_notes", identifier="a", category="notes")
def test_no_customer_falls_under_another(
    one: str, other: str, identifier: str, category: str
) -> None:
    if one == other:
        return
    try:
        key = build_kv_key(other, category, identifier)
        span = CATEGORIES[category].span({"customer": one})
    except KeyFieldError:
        return
    assert key not in span


def test_no_key_belongs_to_two_categories_even_across_customers() -> None:
    """A store is of one customer, where this is plain. An operator has all customers' keys before
    him."""
    templates = [template for record in SCHEMA.records for template in record.templates]
    assert [proof.ambiguity(template) for template in templates] == [None] * 13
    assert [proof.collision(one, other) for one, other in combinations(templates, 2)] == [None] * 78


# The store


def test_configs_from_creation_to_deletion(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        ours, theirs = Store(SCHEMA, engine, "12345"), Store(SCHEMA, engine, "67890")
        cycler = TextCycler(
            id="config1", name="My Text Cycler", text_lines=["Line 1"], created_at="never"
        )
        await ours.put(TEXT_CYCLER, cycler)
        await theirs.put(TEXT_CYCLER, cycler)
        await ours.put(
            NOTE,
            Note(id="config1", title="Stream Ideas", content="1. Play", extra={"pinned": True}),
        )
        stored = {
            "id": "config1",
            "name": "My Text Cycler",
            "textLines": ["Line 1"],
            "createdAt": "2026-01-01T00:00:00.000Z",
            "updatedAt": "2026-01-01T00:00:00.000Z",
        }
        note = {
            "id": "config1",
            "title": "Stream Ideas",
            "content": "1. Play",
            "createdAt": "2026-01-01T00:00:00.000Z",
            "updatedAt": "2026-01-01T00:00:00.000Z",
            "pinned": True,
        }
        await holds(
            ours,
            {
                "cust_12345_streamkit_text-cyclers_config1": stored,
                "cust_12345_streamkit_notes_config1": note,
            },
        )
        await holds(theirs, {"cust_67890_streamkit_text-cyclers_config1": stored})

        clock.advance(milliseconds=1_500)
        await ours.put(TEXT_CYCLER, TextCycler(id="config1", name="Renamed", text_lines=[]))
        changed = stored | {
            "name": "Renamed",
            "textLines": [],
            "updatedAt": "2026-01-01T00:00:01.500Z",
        }
        await holds(
            ours,
            {
                "cust_12345_streamkit_text-cyclers_config1": changed,
                "cust_12345_streamkit_notes_config1": note,
            },
        )

        assert await ours.delete(TEXT_CYCLER, id="config1")
        assert not await ours.delete(TEXT_CYCLER, id="config1")
        await holds(ours, {"cust_12345_streamkit_notes_config1": note})
        await holds(theirs, {"cust_67890_streamkit_text-cyclers_config1": stored})

    drive(work)


def one_key(record: Record[Any]) -> list[Record[Any]]:
    """The record at its v1 key alone, and at its v2 key alone."""
    assert record.legacy is not None
    return [record.legacy, record.current]


def test_a_list_has_one_category_only(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(SCHEMA, engine, "12345")
        for record in (TEXT_CYCLER, SWAP, LAYOUT, NOTE):
            value = next(value for declared, value in VALUES if declared is record)
            for identifier in ("a", "a_b", "scene_activity"):
                for at in one_key(record):
                    await store.put(
                        at, record.json.decode(msgspec.json.encode(value | {"id": identifier}))
                    )
        for scene in one_key(SCENE_ACTIVITY):
            await store.put(scene, SceneActivity(scene_name="notes_a", count=1))
        every = [at for record in CONFIGS.values() for at in (record, *one_key(record))]
        for listed in every:
            assert [entry.record.id async for entry in store.scan(listed)] == [
                "a",
                "a_b",
                "scene_activity",
            ]
        assert [entry.record.scene_name async for entry in store.scan(SCENE_ACTIVITY)] == [
            "notes_a"
        ]

    drive(work)


def test_a_scene_expires_30_days_after_its_last_use(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(SCHEMA, engine, "12345")
        await store.put(SCENE_ACTIVITY, SceneActivity(scene_name="Gaming Scene", count=1))
        clock.advance(seconds=29 * 24 * 3_600)
        await store.put(SCENE_ACTIVITY, SceneActivity(scene_name="Gaming Scene", count=2))
        key = "cust_12345_streamkit_scene_activity_Gaming Scene"
        seen = {"sceneName": "Gaming Scene", "count": 2, "lastUsed": "2026-01-30T00:00:00.000Z"}
        await holds(store, {key: seen})
        clock.advance(seconds=30 * 24 * 3_600 - 1)
        await holds(store, {key: seen})
        clock.advance(seconds=1)
        await holds(store, {})

    drive(work)


def test_a_config_of_the_wrong_type_is_rejected(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(SCHEMA, engine, "12345")
        wrong: Any = Note(id="note1", title=5, content="x")  # type: ignore[arg-type]
        with pytest.raises(RecordError):
            await store.put(NOTE, wrong)
        with pytest.raises(ValueError, match="sourceName"):
            Layout(id="a", name="a", scene="a", sources=[{}])
        await holds(store, {})

    drive(work)


@pytest.mark.parametrize(
    "customer", ["12_streamkit_notes", "12_streamkit", "", "a b", "a" * 65, "12345\n", "é"]
)
def test_an_invalid_customer_id_is_rejected_as_a_space(drive: Drive, customer: str) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        with pytest.raises(KeyFieldError):
            Store(SCHEMA, engine, customer)

    drive(work)
