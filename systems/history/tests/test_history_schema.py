"""The keyspace of viewing history: the keys and values of its document, and entries that move
between rows."""

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keyhouse.clock import ManualClock
from keyhouse.engine import Batch, Engine, Put
from keyhouse.errors import KeyFieldError, RecordError
from keyhouse.store import Store
from keyhouse_history.paths import teams
from keyhouse_history.schema import (
    ASSETS_IN_SEASON,
    ASSETS_IN_STATE,
    ASSETS_OF_TEAM,
    BY_HIERARCHY,
    BY_SPORT,
    ENTRY,
    SCHEMAS,
    Attributes,
    HistoryEntry,
    Marks,
)
from tests.support.bound_rows import bound
from tests.support.store_driver import (
    Drive,
    holds,
    key_round_trips,
    rows,
    value_round_trips,
)

[SCHEMA] = SCHEMAS

SAMPLE: dict[str, Any] = {
    "attr": {
        "assetId": "1981",
        "assetType": "tv-episode",
        "totalTime": 6604,
        "state": "IN_PROGRESS",
        "progress": 2518,
        "updateTime": "2021-01-27T23:37:42.155Z",
    },
    "ext": {
        "showCategoryId": "1446",
        "seasonCategoryId": "1450",
        "sport": "cricket",
        "series-id": "4",
        "team-ids": "60091,60092",
    },
}


def entry(
    asset: str = "1981",
    state: Any = "IN_PROGRESS",
    *,
    timestamps: list[str] | None = None,
    **ext: str,
) -> HistoryEntry:
    """An entry like the document's sample."""
    made = HistoryEntry(
        attr=Attributes(
            asset_id=asset,
            asset_type="tv-episode",
            total_time=6604,
            state=state,
            progress=2518,
            update_time="2021-01-27T23:37:42.155Z",
        ),
        ext={name.replace("_", "-"): value for name, value in ext.items()},
    )
    if timestamps is not None:
        made.m = Marks(timestamps=timestamps)
    return made


def test_the_sample_entry_round_trips_and_so_does_one_that_was_completed() -> None:
    value_round_trips(ENTRY, SAMPLE)
    completed = SAMPLE["attr"] | {"state": "COMPLETED", "progressPercentage": 38.13}
    value_round_trips(
        ENTRY, SAMPLE | {"attr": completed, "m": {"timestamps": ["2021-01-28T01:02:03.004Z"]}}
    )


def test_every_key_of_the_document_is_built_and_parsed() -> None:
    key_round_trips(ENTRY.template, "IN_PROGRESS|1981", {"state": "IN_PROGRESS", "asset": "1981"})
    key_round_trips(ENTRY.template, "COMPLETED|1981", {"state": "COMPLETED", "asset": "1981"})
    key_round_trips(ASSETS_IN_STATE.template, "IN_PROGRESS", {"state": "IN_PROGRESS"})
    key_round_trips(ASSETS_IN_STATE.template, "COMPLETED", {"state": "COMPLETED"})
    key_round_trips(
        ASSETS_OF_TEAM.template,
        "/cricket/4/60091",
        {"sport": "cricket", "series": "4", "team": "60091"},
    )
    key_round_trips(
        ASSETS_OF_TEAM.template,
        "/cricket/4/60092",
        {"sport": "cricket", "series": "4", "team": "60092"},
    )
    key_round_trips(ASSETS_IN_SEASON.template, "/1446/1450", {"show": "1446", "season": "1450"})


def test_the_summary_row_of_the_document_is_read() -> None:
    row = b'{"assetIds" : [ "1981", "1988", "20034", "10011" ]}'
    assert list(bound(ENTRY, ASSETS_IN_STATE).members(row)) == ["1981", "1988", "20034", "10011"]


@pytest.mark.parametrize(
    "text", ["/", "|", "a/b", "a|b", "%", "%2F", "a%7Cb", " ", "😀", "IN_PROGRESS", "null"]
)
def test_values_may_contain_delimiters(text: str) -> None:
    key = ENTRY.template.build({"state": "COMPLETED", "asset": text})
    assert ENTRY.template.parse(key) == {"state": "COMPLETED", "asset": text}
    assert key.count("|") == 1 and "/" not in key
    key = ASSETS_OF_TEAM.template.build({"sport": text, "series": text, "team": text})
    assert ASSETS_OF_TEAM.template.parse(key) == {"sport": text, "series": text, "team": text}
    assert key.count("/") == 3 and ASSETS_IN_SEASON.template.parse(key) is None
    fields = {"path": (text, text), "state": "COMPLETED", "asset": text}
    assert BY_SPORT.template.parse(BY_SPORT.template.build(fields)) == fields


@pytest.mark.parametrize("path", [(), ("",), "1446", ("a", ""), ("a", None), None])
def test_an_invalid_path_is_rejected(path: object) -> None:
    with pytest.raises(KeyFieldError):
        BY_SPORT.template.build({"path": path, "state": "COMPLETED", "asset": "1"})


@pytest.mark.parametrize(
    "key",
    [
        "IN_PROGRESS|",
        "STARTED|1981",
        "IN_PROGRESS|19|81",
        "COMPLETED|a/b",
        "|1981",
        "COMPLETED|a%2f",
        "COMPLETED|%",
    ],
)
def test_a_key_of_another_shape_is_not_an_entry(key: str) -> None:
    assert ENTRY.template.parse(key) is None


TEAM = (
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0,"), min_size=1)
    .map(str.strip)
    .filter(bool)
)


@given(listed=st.lists(TEAM, max_size=6), spaces=st.sampled_from(["", " ", "  \t"]))
@example(listed=["60091", "60092", "60091"], spaces=" ")
def test_a_team_list_is_split_trimmed_and_deduplicated(listed: list[str], spaces: str) -> None:
    found = teams({"team-ids": f"{spaces},{spaces}".join(listed)})
    assert found == list(dict.fromkeys(listed))
    made = entry(sport="cricket", series_id="4", team_ids=",".join(listed))
    added = bound(ENTRY, ASSETS_OF_TEAM).rows(made, ("IN_PROGRESS", "1981"))
    assert len(added) == len(set(listed))
    parsed = [ASSETS_OF_TEAM.template.parse(key) for key in added]
    assert parsed == [{"sport": "cricket", "series": "4", "team": team} for team in found]


@pytest.mark.parametrize("text", ["", ",", " , ,", ",,"])
def test_a_list_of_no_teams_is_empty(text: str) -> None:
    assert teams({"team-ids": text}) == [] == teams({})


@given(
    shows=st.lists(
        st.sampled_from(["1446", "14460", "144", "1446/", "1446/1450", "|"]),
        min_size=2,
        max_size=2,
        unique=True,
    )
)
def test_a_path_covers_whole_segments_only(shows: list[str]) -> None:
    one, other = shows
    span = BY_HIERARCHY.template.span({"path": (one,)})
    key = BY_HIERARCHY.template.build({"path": (other,), "state": "COMPLETED", "asset": "1"})
    assert key not in span
    assert ASSETS_IN_SEASON.template.build(
        {"show": other, "season": "1"}
    ) not in ASSETS_IN_SEASON.template.span({"show": one})


def test_an_entry_from_creation_to_deletion(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(SCHEMA, engine, "profile-1")
        await store.put(ENTRY, ENTRY.json.decode(msgspec.json.encode(SAMPLE)))
        stored = SAMPLE | {"attr": SAMPLE["attr"] | {"progressPercentage": 38.13}}
        only = {"assetIds": ["1981"]}
        await holds(
            store,
            {
                "IN_PROGRESS|1981": stored,
                "IN_PROGRESS": only,
                "/cricket/4/60091": only,
                "/cricket/4/60092": only,
                "/1446/1450": only,
                "path.hierarchy/1446|IN_PROGRESS|1981": 1,
                "path.hierarchy/1446/1450|IN_PROGRESS|1981": 1,
                "path.sport/cricket|IN_PROGRESS|1981": 1,
                "path.sport/cricket/4|IN_PROGRESS|1981": 1,
                "newest|8388209337844|1981|IN_PROGRESS": 1,
                "entries": 1,
            },
        )

        # Another asset of one of the teams; then the first changes its season, series and teams.
        await store.put(ENTRY, entry("1988", sport="cricket", series_id="4", team_ids="60092"))
        moved = entry(
            showCategoryId="1446",
            seasonCategoryId="1451",
            sport="cricket",
            series_id="5",
            team_ids="60093, 60093",
        )
        await store.put(ENTRY, moved)
        stored = await rows(store)
        assert {
            key: value for key, value in stored.items() if not key.startswith("IN_PROGRESS|")
        } == {
            "IN_PROGRESS": {"assetIds": ["1981", "1988"]},
            "/cricket/4/60092": {"assetIds": ["1988"]},
            "/cricket/5/60093": only,
            "/1446/1451": only,
            "path.hierarchy/1446|IN_PROGRESS|1981": 1,
            "path.hierarchy/1446/1451|IN_PROGRESS|1981": 1,
            "path.sport/cricket|IN_PROGRESS|1981": 1,
            "path.sport/cricket/5|IN_PROGRESS|1981": 1,
            "path.sport/cricket|IN_PROGRESS|1988": 1,
            "path.sport/cricket/4|IN_PROGRESS|1988": 1,
            "newest|8388209337844|1981|IN_PROGRESS": 1,
            "newest|8388209337844|1988|IN_PROGRESS": 1,
            "entries": 2,
        }
        await holds(store, stored)

        await store.delete(ENTRY, state="IN_PROGRESS", asset="1981")
        await store.delete(ENTRY, state="IN_PROGRESS", asset="1988")
        await holds(store, {"entries": 0})

    drive(work)


def test_an_asset_that_is_watched_again_stays_in_the_lists_until_both_entries_are_gone(
    drive: Drive,
) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(SCHEMA, engine, "profile-1")
        show: dict[str, Any] = {"showCategoryId": "1446", "seasonCategoryId": "1450"}
        async with store.transaction() as tx:
            await tx.put(ENTRY, entry(**show))
        async with store.transaction() as tx:
            await tx.delete(ENTRY, state="IN_PROGRESS", asset="1981")
            await tx.put(
                ENTRY, entry(state="COMPLETED", timestamps=["2021-01-28T00:00:00Z"], **show)
            )
        seen = await rows(store)
        assert set(seen) == {
            "COMPLETED|1981",
            "COMPLETED",
            "/1446/1450",
            "path.hierarchy/1446|COMPLETED|1981",
            "path.hierarchy/1446/1450|COMPLETED|1981",
            "newest|8388209337844|1981|COMPLETED",
            "entries",
        }
        assert seen["COMPLETED|1981"]["m"] == {"timestamps": ["2021-01-28T00:00:00.000Z"]}
        await holds(store, seen)

        await store.put(ENTRY, entry(**show))
        assert await store.members(ASSETS_IN_SEASON, show="1446", season="1450") == {"1981": None}
        await store.delete(ENTRY, state="COMPLETED", asset="1981")
        assert await store.members(ASSETS_IN_SEASON, show="1446", season="1450") == {"1981": None}
        assert await store.members(ASSETS_IN_STATE, state="COMPLETED") == {}
        await holds(store, await rows(store))
        await store.delete(ENTRY, state="IN_PROGRESS", asset="1981")
        await holds(store, {"entries": 0})

    drive(work)


def test_a_path_lookup_matches_whole_segments_at_any_depth(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(SCHEMA, engine, "profile-1")
        await store.put(ENTRY, entry("1", showCategoryId="1446", seasonCategoryId="1450"))
        await store.put(ENTRY, entry("2", showCategoryId="1446"))
        await store.put(ENTRY, entry("3", showCategoryId="14460", seasonCategoryId="1450"))
        await store.put(
            ENTRY, entry("4", "COMPLETED", showCategoryId="1446", seasonCategoryId="1451")
        )
        await store.put(ENTRY, entry("5", seasonCategoryId="1450"))

        async def found(*path: str, **more: Any) -> list[str]:
            scan = store.scan(ENTRY, by=BY_HIERARCHY, path=path, **more)
            return [found.record.attr.asset_id async for found in scan]

        assert await found("1446") == ["4", "1", "2"]
        assert await found("1446", state="IN_PROGRESS") == ["1", "2"]
        assert await found("1446", "1450") == ["1"]
        assert await found("14460") == ["3"]
        assert await found("1450") == []
        assert [
            found.record.attr.asset_id async for found in store.scan(ENTRY, state="IN_PROGRESS")
        ] == [
            "1",
            "2",
            "3",
            "5",
        ]
        assert [found.record.attr.asset_id async for found in store.scan(ENTRY)] == [
            "4",
            "1",
            "2",
            "3",
            "5",
        ]
        assert (await store.keys(ASSETS_IN_SEASON, show="1446"))[0] == ["/1446/1450", "/1446/1451"]

    drive(work)


def test_lists_at_paths_are_distinguished_by_shape(drive: Drive) -> None:
    """A show may be called like a sport: `/cricket/4` is its season, `/cricket/4/60091` the sport's
    team."""

    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(SCHEMA, engine, "profile-1")
        ext: dict[str, Any] = {
            "showCategoryId": "cricket",
            "seasonCategoryId": "4",
            "sport": "cricket",
            "series_id": "4",
        }
        await store.put(ENTRY, entry(team_ids="60091", **ext))
        assert (await store.keys(ASSETS_IN_SEASON))[0] == ["/cricket/4"]
        assert (await store.keys(ASSETS_OF_TEAM))[0] == ["/cricket/4/60091"]
        assert (await store.keys(ASSETS_IN_STATE))[0] == ["IN_PROGRESS"]
        await holds(store, await rows(store))

    drive(work)


@pytest.mark.parametrize(
    ("progress", "total", "kept", "percentage"),
    [(-5, 100, 0, 0), (150, 100, 100, 100), (1, 3, 1, 33.33), (7, 0, 0, 0)],
)
def test_progress_is_clamped_and_its_percentage_stored(
    progress: int, total: int, kept: int, percentage: float
) -> None:
    made = entry()
    made.attr.progress, made.attr.total_time = progress, total
    attr = ENTRY.unbound.compute(made).attr
    assert (attr.progress, attr.progress_percentage) == (kept, percentage)
    assert made.attr.progress == progress, "the caller's own is left as it is"


def test_an_attribute_of_a_path_must_be_text(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(SCHEMA, engine, "profile-1")
        made = entry()
        made.ext["sport"] = ["cricket"]
        with pytest.raises((RecordError, ValueError)):
            await store.put(ENTRY, made)
        made = entry(sport="x" * 2_000)
        with pytest.raises(KeyFieldError):
            await store.put(ENTRY, made)
        await holds(store, {})

    drive(work)


def test_profiles_are_isolated(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        one, other = Store(SCHEMA, engine, "profile-1"), Store(SCHEMA, engine, "profile-1|x/😀")
        await one.put(ENTRY, entry(sport="cricket"))
        await holds(other, {})
        await other.put(ENTRY, entry(sport="cricket"))
        await one.delete(ENTRY, state="IN_PROGRESS", asset="1981")
        assert len(await rows(other)) == 5
        await holds(one, {"entries": 0})

    drive(work)


@pytest.mark.parametrize("text", ["garbage", "", "2021-01-27T23:37:42.155"])
def test_an_update_time_that_is_not_a_time_with_a_zone_is_rejected(drive: Drive, text: str) -> None:
    """Both were stored, and nothing could be ordered by them."""

    async def work(engine: Engine, clock: ManualClock) -> None:
        store, made = Store(SCHEMA, engine, "profile-1"), entry()
        made.attr.update_time = text
        with pytest.raises(RecordError) as error:
            await store.put(ENTRY, made)
        assert error.value.fields["member"] == "attr.updateTime"
        made.attr.update_time = "2021-01-28T00:37:42+01:00"
        stored = await store.put(ENTRY, made)
        assert stored.record.attr.update_time == "2021-01-27T23:37:42.000Z"

    drive(work)


def test_members_of_other_programs_are_kept(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(SCHEMA, engine, "profile-1")
        value = {**SAMPLE, "attr": SAMPLE["attr"] | {"device": "tv"}, "source": "import"}
        key = "IN_PROGRESS|1981"
        await engine.commit(store.space, Batch(puts=(Put(key, msgspec.json.encode(value)),)))
        found = await store.get(ENTRY, state="IN_PROGRESS", asset="1981")
        assert found is not None
        found.attr.progress = 6604
        await store.put(ENTRY, found)
        after = (await rows(store))[key]
        assert after["attr"]["device"] == "tv" and after["source"] == "import"
        assert after["attr"]["progressPercentage"] == 100
        assert type(after["attr"]["progressPercentage"]) is int

    drive(work)
