"""Results of a search."""

import msgspec

__all__ = ["SearchHit", "SearchPage"]


class SearchHit(msgspec.Struct, frozen=True, gc=False):
    """A record that matches. `fields` are those of its key; a higher `score` is a better match."""

    record: str
    key: str
    fields: dict[str, object]
    score: float


class SearchPage(msgspec.Struct, frozen=True):
    """Hits, best first. `total` is their number without `limit`, if asked for; the index has every
    change up to `revision`."""

    hits: list[SearchHit]
    total: int | None
    revision: int
