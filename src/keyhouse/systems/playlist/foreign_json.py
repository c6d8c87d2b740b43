"""JSON that other programs wrote: rows of shared buckets, replies and events of the robot."""

from typing import Any

import msgspec

__all__ = ["foreign_json"]


def foreign_json(data: bytes) -> Any:
    """Return the value of JSON; None if it is not JSON, or nested too deeply."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
