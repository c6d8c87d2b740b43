"""The verbs of a Store, of a RemoteStore and of `keyhouse.sync` have the same parameters."""

import inspect
from typing import Any

import pytest

from keyhouse import RemoteStore, Store, Transaction, sync
from keyhouse.remote_store import RemoteTransaction

VERBS = [
    *("get", "get_many", "entry", "entries", "lookup", "page", "scan", "keys", "count"),
    *("record_count", "members", "sum_of_days", "watch"),
    *("put", "put_many", "update", "delete", "add", "append", "clear", "call"),
    *("transact", "transaction", "close"),
]
TRANSACTION_VERBS = ["get", "entry", "lookup", "put", "update", "delete", "add", "append"]

STORE_ONLY = {
    *("applied", "find", "forget", "span", "usage", "revision", "schema", "key_ring", "ids"),
    *("binding", "engine", "space"),
    *(
        "record_changes",
        "record_row",
        "record_rows",
        "row",
        "row_page",
        "row_scan",
        "row_watch",
        "rows",
    ),
    *("rows_in_pages", "guard", "with_attempts"),
}
"""Names for programs where the rows are, which a service does not have."""


def parameters(kind: type, verb: str) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(getattr(kind, verb)).parameters.values()
    return [(each.name, each.kind, each.default) for each in found]


@pytest.mark.parametrize("verb", VERBS)
def test_the_verbs_of_every_store_have_the_same_parameters(verb: str) -> None:
    """`watch` of a remote store had neither `unreadable` nor `caught_up`."""
    expected = parameters(Store, verb)
    for kind in (RemoteStore, sync.Store, sync.RemoteStore):
        assert parameters(kind, verb) == expected, kind


@pytest.mark.parametrize("verb", TRANSACTION_VERBS)
def test_the_verbs_of_every_transaction_have_the_same_parameters(verb: str) -> None:
    expected = parameters(Transaction, verb)
    for kind in (RemoteTransaction, sync.Transaction):
        assert parameters(kind, verb) == expected, kind


def test_every_verb_of_a_store_is_compared() -> None:
    """A new verb is added to all of them, or named as one of the rows."""
    verbs = {name for name in dir(Store) if not name.startswith("_")}
    assert verbs - STORE_ONLY <= set(VERBS), sorted(verbs - STORE_ONLY - set(VERBS))
    remote = {name for name in dir(RemoteStore) if not name.startswith("_")}
    assert remote <= {*VERBS, "forget"}, sorted(remote - set(VERBS))
