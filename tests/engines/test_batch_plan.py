"""The outcome of a batch, on a state in a dict."""

import pytest

from keyhouse.engine import Add, Batch, Check, Put
from keyhouse.engines.batch_plan import Writes, evaluate
from keyhouse.errors import CounterError

ROWS = {"a": (3, b"1", None), "n": (4, b"7", 900), "text": (5, b'"x"', None)}


class DictState:
    revision = 9

    def applied(self, space: str, batch_id: str) -> int | None:
        return 6 if batch_id == "known" else None

    def holds(self, space: str, check: Check) -> bool:
        return (ROWS[check.key][0] if check.key in ROWS else None) == check.revision

    def counter(self, space: str, key: str) -> tuple[bytes | None, int | None]:
        return ROWS[key][1:] if key in ROWS else (None, None)


PUT = Put("p", b"1")


@pytest.mark.parametrize(
    ("batch", "outcome"),
    [
        (Batch(puts=(PUT,), deletes=("a",)), Writes((PUT,), ("a",))),
        (
            Batch(adds=(Add("n", 2), Add("new", 5))),
            Writes([Put("n", b"9", 900), Put("new", b"5")], ()),
        ),
        (Batch(checks=(Check("a", 3), Check("b", None)), puts=(PUT,)), Writes((PUT,), ())),
        (Batch(checks=(Check("a", 3), Check("a", 2)), puts=(PUT,)), None),
        (Batch(checks=(Check("a", None),), adds=(Add("text", 1),)), None),
        (Batch(checks=(Check("a", 3),), id="new"), 9),
        (Batch(checks=(Check("a", None),), puts=(PUT,), id="known"), 6),
    ],
)
def test_a_batch_has_one_outcome(batch: Batch, outcome: Writes | int | None) -> None:
    assert evaluate("s", batch, DictState()) == outcome


def test_an_add_to_a_text_is_an_error_if_the_checks_hold() -> None:
    with pytest.raises(CounterError):
        evaluate("s", Batch(checks=(Check("a", 3),), adds=(Add("text", 1),)), DictState())
