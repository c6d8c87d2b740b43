"""A commit is conditional and all or nothing; a failed check is a result, not an error."""

import pytest

from keyhouse.engine import Batch, Check, Put, Row
from keyhouse.errors import CounterError
from keyhouse.limits import COMMIT_ROWS_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX
from keyhouse.testing.conformance.harness import SPACE, Harness, scenario


class CommitTests:
    @scenario()
    async def test_revisions_are_positive_and_increase(self, harness: Harness) -> None:
        revisions = [await harness.put(f"k{number % 3}") for number in range(10)]
        assert revisions[0] > 0
        assert revisions == sorted(set(revisions))

    @scenario()
    async def test_revisions_increase_after_deletes_and_sweeps(self, harness: Harness) -> None:
        first = await harness.put("a", expires=harness.later(1))
        harness.clock.advance(milliseconds=1)
        await harness.engine.sweep(limit=10)
        second = await harness.put("a")
        third = await harness.commit(deletes=("a",))
        fourth = await harness.put("a")
        assert third is not None
        assert first < second < third < fourth

    @scenario()
    async def test_all_rows_of_a_commit_carry_its_revision(self, harness: Harness) -> None:
        revision = await harness.commit(puts={"a": b"1", "b": b"2"}, adds={"c": 3})
        rows = await harness.engine.read(SPACE, ["a", "b", "c"])
        assert [row and row.revision for row in rows] == [revision] * 3

    @scenario()
    async def test_puts_deletes_and_adds_are_one_commit(self, harness: Harness) -> None:
        await harness.put("gone", "changed", "kept")
        await harness.commit(adds={"count": 1})
        revision = await harness.commit(
            puts={"new": b"2", "changed": b"3"}, deletes=("gone",), adds={"count": 4}
        )
        assert revision is not None
        rows = await harness.engine.read(SPACE, ["new", "changed", "gone", "count", "kept"])
        assert [row and row.value for row in rows] == [b"2", b"3", None, b"5", b"1"]
        assert [row and row.revision for row in rows[:2]] == [revision, revision]

    @scenario()
    async def test_a_put_replaces_value_and_expiry(self, harness: Harness) -> None:
        await harness.put("a", value=b"1", expires=harness.later(50))
        revision = await harness.put("a", value=b"2")
        assert await harness.row("a") == Row("a", b"2", revision, None)
        harness.clock.advance(milliseconds=100)
        assert await harness.value("a") == b"2"

    @scenario()
    async def test_deleting_an_absent_row_is_not_an_error(self, harness: Harness) -> None:
        assert await harness.commit(deletes=("a", "b")) is not None
        assert await harness.commit(puts={"c": b"1"}, deletes=("a",)) is not None
        assert await harness.keys() == ["c"]

    @scenario()
    async def test_a_check_of_absence_holds_only_while_the_row_is_absent(
        self, harness: Harness
    ) -> None:
        assert await harness.commit(checks={"a": None}, puts={"a": b"1"}) is not None
        assert await harness.commit(checks={"a": None}, puts={"a": b"2"}) is None
        await harness.commit(deletes=("a",))
        assert await harness.commit(checks={"a": None}, puts={"a": b"3"}) is not None
        assert await harness.value("a") == b"3"

    @scenario()
    async def test_a_check_of_a_revision_holds_only_at_that_revision(
        self, harness: Harness
    ) -> None:
        first = await harness.put("a")
        second = await harness.commit(checks={"a": first}, puts={"a": b"2"})
        assert second is not None
        assert await harness.commit(checks={"a": first}, puts={"a": b"3"}) is None
        assert await harness.commit(checks={"a": second + 1}, puts={"a": b"3"}) is None
        assert await harness.commit(checks={"a": second}, deletes=("a",)) is not None
        assert await harness.commit(checks={"a": second}, puts={"a": b"3"}) is None
        assert await harness.value("a") is None

    @scenario()
    async def test_a_row_that_is_put_again_is_not_at_its_old_revision(
        self, harness: Harness
    ) -> None:
        first = await harness.put("a")
        await harness.commit(deletes=("a",))
        await harness.put("a")
        assert await harness.commit(checks={"a": first}, puts={"a": b"2"}) is None

    @scenario()
    async def test_an_add_moves_a_row_to_a_new_revision(self, harness: Harness) -> None:
        first = await harness.commit(adds={"n": 1})
        second = await harness.commit(adds={"n": 0})
        assert await harness.commit(checks={"n": first}, puts={"a": b"1"}) is None
        assert await harness.commit(checks={"n": second}, puts={"a": b"1"}) is not None

    @scenario()
    async def test_one_failed_check_of_many_leaves_everything_unchanged(
        self, harness: Harness
    ) -> None:
        first = await harness.put("a", "b", value=b"1")
        await harness.commit(adds={"n": 1})
        before = await harness.engine.read(SPACE, ["a", "b", "c", "n"])
        for checks in ({"a": first, "b": None}, {"b": None, "a": first}, {"x": None, "y": first}):
            lost = await harness.commit(
                checks=checks, puts={"a": b"2", "c": b"2"}, deletes=("b",), adds={"n": 1}
            )
            assert lost is None
        assert await harness.engine.read(SPACE, ["a", "b", "c", "n"]) == before

    @scenario()
    async def test_two_checks_of_one_row_must_both_hold(self, harness: Harness) -> None:
        first = await harness.put("a", value=b"1")
        second = await harness.put("a", value=b"2")
        puts = (Put("a", b"3"), Put("b", b"3"))
        for wrong in (first, None):
            for revisions in ((wrong, second), (second, wrong)):
                checks = tuple(Check("a", revision) for revision in revisions)
                assert await harness.engine.commit(SPACE, Batch(checks, puts)) is None
                assert await harness.engine.commit(SPACE, Batch(checks, puts[1:])) is None
        assert await harness.value("a") == b"2" and await harness.keys() == ["a"]
        same = (Check("a", second), Check("a", second))
        assert await harness.engine.commit(SPACE, Batch(same, puts)) is not None

    @scenario()
    async def test_checks_see_the_state_before_the_batch(self, harness: Harness) -> None:
        first = await harness.put("old")
        checks = {"old": first, "new": None}
        assert await harness.commit(checks=checks, puts={"new": b"1"}, deletes=("old",)) is not None
        assert await harness.keys() == ["new"]

    @scenario()
    async def test_a_check_may_concern_a_row_that_is_not_written(self, harness: Harness) -> None:
        guard = await harness.put("guard")
        assert await harness.commit(checks={"guard": guard}, puts={"a": b"1"}) is not None
        await harness.put("guard")
        assert await harness.commit(checks={"guard": guard}, puts={"a": b"2"}) is None
        assert await harness.value("a") == b"1"

    @scenario()
    async def test_a_batch_of_checks_returns_a_result_and_writes_nothing(
        self, harness: Harness
    ) -> None:
        first = await harness.put("a")
        assert await harness.commit(checks={"a": first, "b": None}) is not None
        assert await harness.commit(checks={"a": None}) is None
        assert await harness.row("a") == Row("a", b"1", first)
        assert await harness.keys() == ["a"]

    @scenario()
    async def test_a_rejected_add_rejects_its_whole_batch(self, harness: Harness) -> None:
        await harness.put("text", value=b'"x"')
        await harness.put("gone")
        with pytest.raises(CounterError):
            await harness.commit(puts={"a": b"1"}, deletes=("gone",), adds={"n": 1, "text": 1})
        assert await harness.keys() == ["gone", "text"]

    @scenario()
    async def test_a_key_and_a_value_at_their_limits_are_stored(self, harness: Harness) -> None:
        keys = ["k" * KEY_BYTES_MAX, "\U0001f600" * (KEY_BYTES_MAX // 4)]
        value = b'"' + b"v" * (VALUE_BYTES_MAX - 2) + b'"'
        await harness.put(*keys, value=value)
        assert await harness.keys() == keys
        for key in keys:
            assert await harness.value(key) == value

    @scenario()
    async def test_a_commit_accepts_as_many_rows_as_the_engine_declares(
        self, harness: Harness
    ) -> None:
        keys = [
            f"k{number:05d}"
            for number in range(min(COMMIT_ROWS_MAX, harness.engine.capabilities.commit_rows_max))
        ]
        assert await harness.commit(puts=dict.fromkeys(keys, b"1")) is not None
        assert await harness.keys() == keys
        assert await harness.commit(deletes=tuple(keys)) is not None
        assert await harness.keys() == []
