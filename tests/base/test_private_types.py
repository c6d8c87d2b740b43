"""Values with private members are found, however they are nested."""

from typing import Any

from msgspec import Struct

from keyhouse.private_types import hidden_in, hide


class Secret(Struct):
    pin: str


hide(Secret)


def test_a_value_that_holds_itself_is_examined_once() -> None:
    """The examination did not end."""
    own: dict[str, Any] = {}
    own["own"] = [own]
    assert hidden_in(own) is None
    own["other"] = {"secret": (Secret("4711"),)}
    assert hidden_in(own) is Secret
