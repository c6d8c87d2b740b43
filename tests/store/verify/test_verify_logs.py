"""Verify finds unfolded events, and log states and sequences with a wrong position."""

import pytest

from keyhouse.clock import ulid_at
from keyhouse.errors import RevisionError, UnreadableError
from keyhouse.store import Finding
from keyhouse.testing.faults import FaultyEngine, meanwhile
from tests.store.support.harness import Harness, clean, everywhere, findings, kinds_and_keys
from tests.store.support.library_schema import (
    HEARD,
    HEARING,
    LINE,
    NEXT_LINE,
    SECONDS_OF,
    Heard,
    Line,
)


def _heard(seconds: int, user: str = "ann", at: str = "") -> Heard:
    return Heard(user=user, book="b", seconds=seconds, at=at)


@everywhere
async def test_an_event_that_came_past_its_log_is_found_and_folded(harness: Harness) -> None:
    """An import wrote events without a state: the next append moved `through` past them."""
    store = harness.store()
    await store.append(HEARD, _heard(5))
    later = ulid_at(harness.clock.now() + 1_000)
    async with store.transaction() as tx:
        await tx.restore(HEARD, _heard(7, at=later))
        await tx.restore(HEARD, _heard(9, user="bob", at=later))
    wrong = [("unfolded", "heard:state:ann"), ("unfolded", "heard:state:bob")]
    assert (
        kinds_and_keys(await findings(store)) == wrong
        and await store.get(SECONDS_OF, user="ann") == 5
    )
    repaired = await findings(store, repair=True)
    assert kinds_and_keys(repaired) == wrong and all(finding.repaired for finding in repaired)
    assert (
        await store.get(SECONDS_OF, user="ann") == 12
        and await store.get(SECONDS_OF, user="bob") == 9
    )
    state = await store.get(HEARING, user="ann")
    assert state is not None and state.through == later
    await clean(store)


@everywhere
async def test_a_state_that_was_set_back_is_found(harness: Harness) -> None:
    store = harness.store()
    await store.append(HEARD, _heard(5))
    [before] = [
        written for key, (written, _) in (await harness.rows()).items() if key == "heard:state:ann"
    ]
    await store.append(HEARD, _heard(6))
    await harness.plant({"heard:state:ann": before})
    [finding] = await findings(store)
    assert (finding.kind, finding.key) == (
        "unfolded",
        "heard:state:ann",
    ) and "are not folded" in finding.detail


@everywhere
async def test_a_state_with_an_invalid_position_is_found_and_repaired(
    harness: Harness,
) -> None:
    """An append raised a bare ValueError."""
    store = harness.store()
    entry = await store.append(HEARD, _heard(5))
    await harness.plant({"heard:state:ann": b'{"through":"yesterday","book":"b","changes":0}'})
    await harness.plant({"heard:state:cy": b'{"through":"yesterday","book":"b","changes":0}'})
    with pytest.raises(UnreadableError, match="keyhouse verify"):
        await store.append(HEARD, _heard(6))
    wrong = [("wrong", "heard:state:ann"), ("wrong", "heard:state:cy")]
    assert (
        kinds_and_keys(await findings(store))
        == wrong
        == kinds_and_keys(await findings(store, repair=True))
    )
    ann, cy = await store.get(HEARING, user="ann"), await store.get(HEARING, user="cy")
    assert (
        ann is not None and ann.through == entry.values[-1] and cy is not None and cy.through == ""
    )
    await store.append(HEARD, _heard(6))
    assert await store.get(SECONDS_OF, user="ann") == 11
    await clean(store)


@everywhere
async def test_a_sequence_that_was_set_back_is_found_and_repaired(harness: Harness) -> None:
    """No line could be appended any more: its position was taken."""
    store = harness.store()
    for text in "abc":
        await store.append(LINE, Line(text), job="j")
    await harness.plant({"line:next:j": b"1"})
    with pytest.raises(RevisionError):
        await store.append(LINE, Line("d"), job="j")
    [finding] = await findings(store, repair=True)
    assert finding == Finding("wrong", "line:next:j", "line", "is 1, but event 2 exists", True)
    await store.append(LINE, Line("d"), job="j")
    assert await store.get(NEXT_LINE, job="j") == 4
    await harness.plant({"line:next:j": None})
    assert kinds_and_keys(await findings(store, repair=True)) == [("wrong", "line:next:j")]
    await clean(store)


@everywhere
async def test_no_event_that_is_appended_while_verify_looks_is_a_finding(harness: Harness) -> None:
    store = harness.store()
    for _ in range(3):
        await store.append(HEARD, _heard(1))
        await store.append(LINE, Line("x"), job="j")

    async def more() -> None:
        await store.append(HEARD, _heard(1))
        await store.append(HEARD, _heard(1, user="new"))
        await store.append(LINE, Line("x"), job="j")

    for call in ("scan", "read"):
        for at in range(1, 14, 2):
            engine = FaultyEngine(harness.engine, meanwhile(at, more, call=call, after=True))
            assert await findings(harness.store(engine=engine), repair=True) == []
    assert await store.get(SECONDS_OF, user="ann") == await store.count(HEARD, user="ann")
