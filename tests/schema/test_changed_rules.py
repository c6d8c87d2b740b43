"""Rules whose rows cannot differ between two states of a record are skipped, and no others."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse import Index, Record, RecordCount, Summary, Unique
from keyhouse.errors import DeclarationError
from keyhouse.schema import FromAttribute
from tests.support.bound_rows import bound


class Item(msgspec.Struct, kw_only=True):
    id: str
    name: str | None = None
    number: int | None = None
    tags: list[str] = []
    owner: dict[str, str] = {}
    is_hidden: bool = False


def shown(item: Item) -> bool:
    return not item.is_hidden


ITEM = Record(
    Item,
    "item:{id}",
    Index("by_name:{name}:{id}"),
    Index("by_number:{number:06d}:{id}", when=shown),
    Index("by_tag:{tag}:{id}", each={"tag": "tags"}, when=shown),
    Index("by_owner:{owner}:{id}", fields={"owner": lambda item: item.owner.get("name")}),
    Index("by_owners:{owner}:{id}", each={"owner": FromAttribute("owner", dict.values)}),
    Index(
        "by_city:{city}:{id}",
        fields={"city": FromAttribute("owner", lambda owner: owner.get("city"))},
    ),
    Unique("name:{name}", value="id"),
    Summary("names", member="id", under="ids"),
    Summary("entries", member="id", under="entries", entry=lambda item: {"name": item.name}),
    RecordCount("count:{number:06d}"),
)

TEXTS = st.sampled_from(("a", "b"))
ITEMS: st.SearchStrategy[Any] = st.builds(
    Item,
    id=st.just("1"),
    name=st.none() | TEXTS,
    number=st.none() | st.integers(0, 2),
    tags=st.lists(TEXTS, max_size=2),
    owner=st.dictionaries(st.sampled_from(("name", "city")), TEXTS),
    is_hidden=st.booleans(),
)


@given(ITEMS, ITEMS)
def test_rows_that_differ_are_those_of_changed_rules(before: Item, after: Item) -> None:
    changed = [
        *ITEM.unbound.changed_owned.between(before, after),
        *ITEM.unbound.changed_shared.between(before, after),
    ]
    for derived in ITEM.unbound.derived:
        if derived.rows(before, ("1",)) != derived.rows(after, ("1",)):
            assert derived in changed, derived


def test_an_unchanged_record_has_no_changed_rules_but_those_of_entries() -> None:
    item, same = Item(id="1", name="a", tags=["x"]), Item(id="1", name="a", tags=["x"])
    assert ITEM.unbound.changed_owned.between(item, same) == []
    assert [each.template.text for each in ITEM.unbound.changed_shared.between(item, same)] == [
        "entries"
    ]


def test_equal_values_of_different_types_count_as_changed() -> None:
    before, after = Item(id="1", number=1), Item(id="1", number=True)
    assert ITEM.unbound.derived[1] in ITEM.unbound.changed_owned.between(before, after)


def test_a_source_that_raises_leaves_it_to_the_rows_to_raise() -> None:
    broken = Item(id="1", owner=None)  # type: ignore[arg-type]  # the broken value
    assert ITEM.unbound.changed_owned.between(Item(id="1"), broken) == ITEM.unbound.owned


def test_a_function_of_an_attribute_is_called_only_where_the_attribute_changed() -> None:
    calls: list[object] = []

    def first(tags: list[str]) -> str | None:
        calls.append(tags)
        return tags[0] if tags else None

    by_first = Index("by_first:{tag}:{id}", fields={"tag": FromAttribute("tags", first)})
    record = Record(Item, "item:{id}", by_first)
    assert (
        record.unbound.changed_owned.between(Item(id="1", tags=["x"]), Item(id="1", tags=["x"]))
        == []
    )
    assert calls == []
    assert (
        record.unbound.changed_owned.between(
            Item(id="1", tags=["x", "y"]), Item(id="1", tags=["x"])
        )
        == []
    )
    assert record.unbound.changed_owned.between(
        Item(id="1", tags=["y"]), Item(id="1", tags=["x"])
    ) == [bound(record, by_first)]
    assert len(calls) == 4


def test_a_function_of_an_attribute_that_the_record_lacks_is_rejected() -> None:
    with pytest.raises(DeclarationError, match="no such attribute"):
        Record(Item, "item:{id}", Index("by:{tag}:{id}", fields={"tag": FromAttribute("tag", str)}))
