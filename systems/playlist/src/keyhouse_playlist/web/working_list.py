"""The working list: a saved playlist, changed one step at a time. Every step is stored at once.

A step names an item by place and id. The place is where the page last showed the item: if it has
moved since, the occurrence of the id that is nearest to it is taken.

    add ID             at the end
    all IDS            the items of a JSON array, at the end
    insert AT ID       at a place
    up AT ID           one place up, or down
    move AT TO ID      to a place
    remove AT ID
    unique             removes all later occurrences of items
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import UNSET

from keyhouse.advice import nearest
from keyhouse.errors import ConflictError, RevisionError, UsageError
from keyhouse.http import Conditions, etag
from keyhouse.service.pages.text import counted
from keyhouse_playlist.accounts.sessions import ChannelMember
from keyhouse_playlist.catalog.access import CatalogAccess
from keyhouse_playlist.limits import PLAYLIST_ITEMS_MAX, VIDEO_ID_CHARS_MAX
from keyhouse_playlist.playlists.document import StoredPlaylist
from keyhouse_playlist.playlists.messages import ItemBody, PlaylistSummary
from keyhouse_playlist.playlists.saved import SavedPlaylists

__all__ = ["ListItem", "ListView", "StepResult", "WorkingLists"]

_PLACE_DIGITS_MAX = 6

ITEMS_SHOWN: Final = 200
"""Items of a playlist that a page shows at once."""

_ATTEMPTS: Final = 8
_PLACES: Final = {"add": 0, "insert": 1, "up": 1, "down": 1, "remove": 1, "move": 2}
_WHOLE: Final = ("all", "unique")


class ListItem(msgspec.Struct):
    """An item as the page shows it. `key` names it in the page, also after it has moved."""

    at: int
    key: str
    video_id: str
    title: str
    seconds: int | None
    is_known: bool
    first_at: int | None = None
    """The place of the first occurrence, if this is a later one."""


class ListView(msgspec.Struct):
    """A playlist as the page shows it; a long one in parts: `items` are those from `start`."""

    id: str
    name: str
    created_by: str
    updated_at: str
    items: list[ListItem]
    start: int
    count: int
    video_ids: set[str]
    total_seconds: int
    duplicates: int
    can_change: bool
    is_read_only: bool
    forked_from: str = ""
    said: str = ""
    undo: str = ""
    error: str = ""
    others: list[PlaylistSummary] = []

    @property
    def end(self) -> int:
        return self.start + len(self.items)

    @property
    def previous(self) -> int | None:
        """The start of the part before this one."""
        return max(0, self.start - ITEMS_SHOWN) if self.start else None

    @property
    def following(self) -> int | None:
        return self.end if self.end < self.count else None


class StepResult(msgspec.Struct, frozen=True):
    """The items after a step, a sentence about it, and the step that takes it back, or ""."""

    items: list[ItemBody]
    said: str
    undo: str = ""


class WorkingLists:
    def __init__(self, playlists: SavedPlaylists, catalog: CatalogAccess) -> None:
        self._playlists = playlists
        self._catalog = catalog

    async def view(self, id: str, member: ChannelMember, start: int = 0) -> ListView:
        """Return a playlist, with the part of its items from `start`; beyond its end, the last
        part. Raises NotFoundError without this playlist."""
        stored = await self._playlists.read(id)
        known = await self._catalog.get_many([item.video_id for item in stored.items])
        items: list[ListItem] = []
        first: dict[str, int] = {}
        times: dict[str, int] = {}
        for at, item in enumerate(stored.items):
            entry = known.get(item.video_id, item)
            times[item.video_id] = times.get(item.video_id, 0) + 1
            shown = ListItem(
                at,
                f"{item.video_id}.{times[item.video_id]}",
                item.video_id,
                entry.title or item.video_id,
                entry.duration_seconds,
                item.video_id in known,
                first.get(item.video_id),
            )
            first.setdefault(item.video_id, at)
            items.append(shown)
        if start >= len(items):
            start = max(0, len(items) - 1) // ITEMS_SHOWN * ITEMS_SHOWN
        by = _text(stored, "created_by")
        return ListView(
            id=stored.id,
            name=stored.name,
            created_by=by,
            updated_at=_text(stored, "updated_at"),
            items=items[start : start + ITEMS_SHOWN],
            start=start,
            count=len(items),
            video_ids=set(first),
            total_seconds=sum(item.seconds or 0 for item in items),
            duplicates=len(items) - len(first),
            can_change=member.can_write
            and not stored.is_read_only
            and (member.is_admin or member.is_named(by)),
            is_read_only=stored.is_read_only,
            forked_from=_text(stored, "forked_from"),
        )

    async def create(self, name: str, member: ChannelMember) -> str:
        """Create an empty playlist, and return its id. Without a name: "New playlist"."""
        chosen = name if name.strip() else await self._playlists.free_name("New playlist")
        if chosen is None:
            raise ConflictError("There are too many new playlists: rename or delete some.")
        return (await self._playlists.create(chosen, [], member)).playlist_id

    async def change(self, id: str, step: str, member: ChannelMember) -> StepResult:
        """Take one step. Raises UsageError or ConflictError; then nothing has changed."""
        for _ in range(_ATTEMPTS):
            stored = await self._playlists.read(id)
            result = apply_step(stored.bodies, step, await self._titles(stored, step))
            unchanged = Conditions(if_match=(etag(stored.revision),))
            try:
                await self._playlists.replace(id, UNSET, result.items, member, unchanged)
            except RevisionError:
                continue  # somebody else was first: once more, on the newer list
            return result
        raise ConflictError("Others change this playlist at the same time: try again.")

    async def _titles(self, stored: StoredPlaylist, step: str) -> dict[str, str]:
        titles = {item.video_id: item.title or item.video_id for item in stored.items}
        added = [step.removeprefix("add ")] if step.startswith("add ") else []
        known = await self._catalog.get_many([*titles, *added])
        return titles | {each: item.title for each, item in known.items()}


def apply_step(items: Sequence[ItemBody], step: str, titles: dict[str, str]) -> StepResult:
    """Return the items after a step. Pure."""
    verb, _, rest = step.partition(" ")
    if verb in _WHOLE:
        return _unique(items) if verb == "unique" else _appended(items, rest)
    if verb not in _PLACES:
        raise UsageError("Unknown step.", step=verb, **nearest(verb, [*_WHOLE, *_PLACES]))
    *places, id = rest.split(" ", _PLACES[verb])
    are_places = all(each.isdigit() and len(each) <= _PLACE_DIGITS_MAX for each in places)
    if not are_places or len(places) < _PLACES[verb]:
        raise UsageError("A step names a place and an item.", step=step[:100])
    _check_id(id)
    title = titles.get(id, id)
    numbers = [int(each) for each in places]
    if verb in ("add", "insert"):
        return _inserted(items, id, title, numbers[0] if numbers else len(items))
    at = _nearest(items, id, numbers[0], title)
    left = [each for place, each in enumerate(items) if place != at]
    if verb == "remove":
        return StepResult(left, f"Removed {title}.", f"insert {at} {id}")
    to = {"up": at - 1, "down": at + 1, "move": numbers[-1]}[verb]
    to = max(0, min(len(left), to))
    said = f"{title} is now {to + 1} of {len(items)}."
    return StepResult([*left[:to], items[at], *left[to:]], said, f"move {to} {at} {id}")


def _check_id(id: str) -> None:
    if not id or len(id) > VIDEO_ID_CHARS_MAX:
        raise UsageError("A step names an item.", video_id=id[:100])


def _check_room(count: int) -> None:
    if count > PLAYLIST_ITEMS_MAX:
        raise ConflictError(
            f"A playlist has at most {PLAYLIST_ITEMS_MAX:,} items.", limit=PLAYLIST_ITEMS_MAX
        )


def _appended(items: Sequence[ItemBody], ids: str) -> StepResult:
    try:
        added = msgspec.json.decode(ids, type=list[str])
    except msgspec.DecodeError as error:
        raise UsageError("A step names items as a JSON array.", reason=str(error)) from None
    for id in added:
        _check_id(id)
    _check_room(len(items) + len(added))
    said = f"Added {counted(len(added), 'item')}."
    return StepResult([*items, *map(ItemBody, added)], said)


def _inserted(items: Sequence[ItemBody], id: str, title: str, at: int) -> StepResult:
    _check_room(len(items) + 1)
    at = min(at, len(items))
    again = " again: it is in the list twice" if any(each.video_id == id for each in items) else ""
    added = [*items[:at], ItemBody(id), *items[at:]]
    return StepResult(added, f"Added {title}{again}.", f"remove {at} {id}")


def _unique(items: Sequence[ItemBody]) -> StepResult:
    first: dict[str, ItemBody] = {}
    for each in items:
        first.setdefault(each.video_id, each)
    kept = list(first.values())
    removed = len(items) - len(kept)
    return StepResult(kept, f"Removed {counted(removed, 'duplicate')}.")


def _nearest(items: Sequence[ItemBody], id: str, at: int, title: str) -> int:
    places = [place for place, each in enumerate(items) if each.video_id == id]
    if not places:
        raise ConflictError(f"{title} is no longer in the list.", video_id=id)
    return min(places, key=lambda place: abs(place - at))


def _text(stored: StoredPlaylist, name: str) -> str:
    value = stored.document.get(name)
    return value if isinstance(value, str) else ""
