"""A batch beyond the limits is rejected before an engine is called; the error has the limit."""

import pytest

from keyhouse.engine import Add, Batch, Capabilities, Put, check_limits
from keyhouse.errors import LimitError
from keyhouse.limits import BATCH_ID_BYTES_MAX, VALUE_BYTES_MAX

SMALL = Capabilities(
    name="small",
    durable=True,
    shared=False,
    commit_rows_max=3,
    commit_bytes_max=VALUE_BYTES_MAX + 100,
)


def test_a_batch_within_the_limits_is_accepted() -> None:
    check_limits(Batch(), SMALL)
    check_limits(
        Batch(
            puts=(Put("a", b"1"),), deletes=("b",), adds=(Add("c", 1),), id="x" * BATCH_ID_BYTES_MAX
        ),
        SMALL,
    )
    check_limits(Batch(puts=(Put("a", b"x" * VALUE_BYTES_MAX),)), SMALL)


@pytest.mark.parametrize(
    "batch",
    [
        Batch(puts=tuple(Put(str(number), b"1") for number in range(4))),
        Batch(deletes=("a", "b"), adds=(Add("c", 1), Add("d", 1))),
        Batch(puts=(Put("a", b"x" * (VALUE_BYTES_MAX + 1)),)),
        Batch(puts=(Put("a", b"x" * VALUE_BYTES_MAX), Put("b", b"x" * 100))),
        Batch(id=""),
        Batch(id="x" * (BATCH_ID_BYTES_MAX + 1)),
        Batch(id="é" * (BATCH_ID_BYTES_MAX // 2 + 1)),
        Batch(id="\ud800"),
    ],
    ids=[
        "rows",
        "rows of all sorts",
        "a value",
        "bytes",
        "an empty id",
        "a long id",
        "an id long in bytes",
        "an id that is not text",
    ],
)
def test_a_batch_beyond_a_limit_is_rejected(batch: Batch) -> None:
    with pytest.raises(LimitError) as refused:
        check_limits(batch, SMALL)
    assert "limit" in refused.value.fields
