"""Laws of ranges: a scan of a range returns exactly the values within it, in every alphabet."""

from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from keyhouse.errors import DeclarationError, KeyFieldError, UsageError
from keyhouse.keys import NATS, PLAIN, Escape, Template, normal
from tests.keys import strategies as keys

ORDERED = ["ulid", "integer", "scaled", "date", "time", "-time", "-integer", "ulid?", "integer?"]


def lies_within(value: Any, low: Any, high: Any) -> bool:
    if value is None:
        return False
    return (low is None or low <= value) and (high is None or value < high)


@given(data=st.data(), name=st.sampled_from(ORDERED), last=st.booleans())
def test_a_range_of_numbers_days_and_times_holds_exactly_its_values(
    data: st.DataObject, name: str, last: bool
) -> None:
    kind = keys.BY_NAME[name]
    template = Template("x:{group}:{n}" + ("" if last else ":{id}"), n=kind.segment)
    value, low, high = data.draw(kind.values), data.draw(kind.values), data.draw(kind.values)
    values = {"group": "g", "n": value} | ({} if last else {"id": "1"})
    found = template.range({"group": "g"}, between=(low, high))
    assert found.accepts is None
    assert keys.covers(template, found, template.build(values)) == lies_within(value, low, high)
    other = template.build(values | {"group": "gg"})
    assert not keys.covers(template, found, other)


@given(
    value=keys.plain_texts,
    low=st.none() | keys.texts,
    high=st.none() | keys.texts,
    escape=st.sampled_from([PLAIN, NATS]),
    tail=st.sampled_from([":{id}", "/{id}", "|{id}", "", "!"]),
)
@example(value="a", low="a!", high=None, escape=PLAIN, tail=":{id}")
@example(value="a", low="a", high="a!", escape=PLAIN, tail=":{id}")
@example(value="a.b", low="a.", high="a.c", escape=NATS, tail="/{id}")
@example(value=":", low="0", high="A", escape=PLAIN, tail=":{id}")
def test_a_range_of_text_holds_exactly_its_values(
    value: str, low: str | None, high: str | None, escape: Escape, tail: str
) -> None:
    if escape is NATS:
        tail = tail.replace(":", "/").replace("|", "/").replace("!", "/")
    template = Template("x/{n}" + tail, escape=escape)
    try:
        key = template.build({"n": value} | ({"id": "1"} if "{id}" in tail else {}))
    except KeyFieldError:
        assume(False)
    found = template.range({}, between=(low, high))
    assert keys.covers(template, found, key) == lies_within(value, low, high)


@given(value=keys.plain_texts, low=keys.texts, high=keys.texts)
def test_a_range_of_normalized_text_normalizes_its_bounds(value: str, low: str, high: str) -> None:
    template = Template("x:{n:norm}:{id}")
    assume(normal(value) and not low[-1:].isspace() and not high[-1:].isspace())
    assume(normal(low) and normal(high))
    key = template.build({"n": value, "id": "1"})
    found = template.range({}, between=(low, high))
    assert keys.covers(template, found, key) == (normal(low) <= normal(value) < normal(high))


@given(
    value=keys.plain_texts, start=keys.texts, more=keys.texts, tail=st.sampled_from(["/{id}", ""])
)
@example(value="a", start="a.", more=".", tail="/{id}")
@example(value="a", start=".", more="b", tail="")
def test_a_prefix_in_the_nats_alphabet_finds_exactly_the_matching_values(
    value: str, start: str, more: str, tail: str
) -> None:
    template = Template("x/{n}" + tail, escape=NATS)
    found = template.range({}, prefix=start)
    for each in (value, start, start + more):
        try:
            key = template.build({"n": each} | ({"id": "1"} if tail else {}))
        except KeyFieldError:
            continue  # too long
        assert keys.covers(template, found, key) == each.startswith(start)


def test_a_range_of_letters_reads_only_those_letters() -> None:
    """With a filter alone, a range of titles from m to n would read the whole index."""
    template = Template("idx:title:{title}:{id}")
    span = template.range({}, between=("m", "n")).span
    assert template.build({"title": "lynch", "id": "1"}) not in span
    assert template.build({"title": "oz", "id": "1"}) not in span
    assert template.build({"title": "moon", "id": "1"}) in span


def test_a_descending_field_lists_the_greatest_first() -> None:
    template = Template("newest|{at:-time}|{id}")
    times = [datetime(2026, 1, day, tzinfo=UTC) for day in (3, 1, 2)]
    listed = sorted(template.build({"at": each, "id": "1"}) for each in times)
    assert [(template.parse(key) or {})["at"].day for key in listed] == [3, 2, 1]  # type: ignore[attr-defined]


def test_a_time_is_taken_from_its_text_and_cut_to_milliseconds() -> None:
    template = Template("at:{at:time}")
    assert template.build({"at": "2026-01-18T13:00:00.1239+01:00"}) == "at:1768737600123"
    assert template.parse("at:1768737600123") == {
        "at": datetime(2026, 1, 18, 12, 0, 0, 123_000, tzinfo=UTC)
    }


@pytest.mark.parametrize("value", ["yesterday", "2026-01-18T12:00:00", date(2026, 1, 18), 7, None])
def test_a_time_without_a_zone_is_rejected(value: object) -> None:
    with pytest.raises(KeyFieldError, match="must be a time"):
        Template("at:{at:time}").build({"at": value})


@pytest.mark.parametrize("spec", ["-text", "-date", "-ulid", "-a|b"])
def test_only_numbers_and_times_descend(spec: str) -> None:
    with pytest.raises(DeclarationError, match="descending order"):
        Template(f"x:{{a:{spec}}}:{{id}}")


@pytest.mark.parametrize(
    ("template", "values", "between"),
    [
        ("x:{a:a|b}:{id}", {}, ("a", "b")),
        ("x:{a:010d}", {}, ("1", None)),
        ("x:{a:010d}", {}, 7),
        ("x:{a}:{id}", {}, (1, 2)),
        ("x:{a}:{id}", {}, ("\ud800", None)),
        ("x:{a}", {"a": "1"}, ("a", "b")),
        ("x:{a}:{b}", {"b": "1"}, ("a", "b")),
    ],
)
def test_a_range_that_no_key_can_have_is_rejected(
    template: str, values: dict[str, str], between: Any
) -> None:
    with pytest.raises(UsageError):
        Template(template).range(values, between=between)


def test_a_range_and_a_prefix_are_not_combined() -> None:
    with pytest.raises(UsageError, match="not both"):
        Template("x:{a}:{id}").range({}, prefix="a", between=("a", "b"))


def test_a_range_that_ends_before_it_starts_is_empty() -> None:
    for template, between in (("x:{a:04d}", (5, 3)), ("x:{a}:{id}", ("b", "a"))):
        span = Template(template).range({}, between=between).span
        assert span.start == span.stop
