"""A limit that several processes have together."""

from hashlib import blake2b
from typing import NamedTuple

from keyhouse.engine import Engine
from keyhouse.service.limit_table import LimitSlots

__all__ = ["SharedLimit"]


class SharedLimit(NamedTuple):
    """The workers of a host share `slots`, hosts share rows of `engine`; None without others.
    `kind` names the limit."""

    kind: str
    slots: LimitSlots | None = None
    engine: Engine | None = None

    def key(self, name: str) -> str:
        """Return the key of the row of a tenant or an address, which it does not show."""
        text = f"{self.kind}\0{name}".encode("utf-8", "surrogatepass")
        return f"limit:{blake2b(text, digest_size=16).hexdigest()}"
