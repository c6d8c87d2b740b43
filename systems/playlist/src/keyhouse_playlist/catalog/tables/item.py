"""Items and snapshots of a catalog."""

import msgspec

__all__ = ["CatalogItem", "SnapshotInfo"]


class CatalogItem(msgspec.Struct, frozen=True, kw_only=True):
    """One video, with the members of the API."""

    video_id: str
    title: str
    categories: list[str] = []
    manifest_url: str
    duration_seconds: int | None = None
    thumbnail_url: str | None = None


class SnapshotInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the catalog that a file holds."""

    snapshot_id: str
    source: str
    created_at: str
    item_count: int = 0
