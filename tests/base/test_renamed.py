"""Former names: an import or a call gets a sentence with the present name."""

import asyncio
import importlib

import pytest

import keyhouse
from keyhouse import Record, Schema, Space, open_store, sync
from keyhouse.renamed import RENAMED

SCHEMA = Schema("notes", Record(str, "note:{id}", name="note"), space=Space("a person"))


@pytest.mark.parametrize("old", RENAMED)
def test_an_import_of_a_former_name_gives_the_present_one(old: str) -> None:
    with pytest.raises(ImportError, match=f"`{old}` is now `{RENAMED[old]}`"):
        exec(f"from keyhouse import {old}")
    assert hasattr(keyhouse, RENAMED[old])


@pytest.mark.parametrize("module", ["keyhouse", "keyhouse.keys", "keyhouse.schema"])
def test_a_name_that_never_was_is_an_ordinary_error(module: str) -> None:
    with pytest.raises(AttributeError, match="Nothing"):
        importlib.import_module(module).Nothing  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name"):
        exec(f"from {module} import Nothing")


def test_a_former_verb_of_a_store_gives_the_present_one() -> None:
    async def main() -> None:
        async with open_store(SCHEMA, "memory:", "ann") as store:
            with pytest.raises(AttributeError, match=r"`Store.total` is now `Store.record_count`"):
                store.total  # type: ignore[attr-defined]  # noqa: B018
            with pytest.raises(AttributeError, match="no attribute 'nothing'"):
                store.nothing  # type: ignore[attr-defined]  # noqa: B018

    asyncio.run(main())


def test_a_former_verb_without_an_event_loop_gives_the_present_one() -> None:
    with (
        sync.open_store(SCHEMA, "memory:", "ann") as store,
        pytest.raises(AttributeError, match=r"is now `Store.record_count`"),
    ):
        store.total  # type: ignore[attr-defined]  # noqa: B018
