"""The channel as its robot shows it: the queue and the current item, in the robot's own bucket.

The bucket `kryten_{channel}_playlist` belongs to the robot and is only read. Its items are those of
CyTube, with the media nested or not; one that cannot be understood is left out.
"""

from typing import Any, TypeGuard

import msgspec

from keyhouse.errors import EngineError
from keyhouse.schema import SECONDS
from keyhouse.store import RawRows
from keyhouse_playlist.catalog.access import CatalogAccess
from keyhouse_playlist.channel.messages import NowPlaying, QueueItem, QueueReply
from keyhouse_playlist.errors import NoCurrentItemError, RobotUnavailableError
from keyhouse_playlist.stores import PlaylistStores, foreign_json

__all__ = ["Channel", "Media", "read_media"]

ITEMS = "items"
CURRENT = "current"
SECONDS_MAX = 2**31
"""Of a media item: no robot shows a longer one."""


class Media(msgspec.Struct, frozen=True):
    """A media item of the robot."""

    id: str
    title: str
    uid: int | str | None = None
    seconds: int | None = None
    queued_by: str | None = None
    current_time: float = 0.0
    is_paused: bool = False


def read_media(value: object) -> Media | None:
    """Return a media item from JSON of the robot; None if it has no id."""
    if not isinstance(value, dict):
        return None
    nested = value.get("media")
    both: dict[str, Any] = {**value, **(nested if isinstance(nested, dict) else {})}
    id, title, uid = both.get("id"), both.get("title"), value.get("uid", both.get("uid"))
    if not isinstance(id, str) or not id:
        return None
    seconds = both.get("seconds", both.get("duration_seconds"))
    current = both.get("currentTime", both.get("current_time"))
    by = both.get("queueby", both.get("queued_by"))
    return Media(
        id=id,
        title=title if isinstance(title, str) and title else id,
        uid=uid if isinstance(uid, str) or type(uid) is int else None,
        seconds=int(seconds) if _is_time(seconds) and seconds > 0 else None,
        queued_by=by if isinstance(by, str) else None,
        current_time=float(current) if _is_time(current) else 0.0,
        is_paused=both.get("paused") is True,
    )


def _is_time(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and 0 <= value < SECONDS_MAX


class Channel:
    """`rows` are those of the robot's bucket; None without NATS."""

    def __init__(
        self, rows: RawRows | None, catalog: CatalogAccess, stores: PlaylistStores
    ) -> None:
        self._rows = rows
        self._catalog = catalog
        self._stores = stores
        self.is_stopped = False
        """Set while the robot has said that it stopped: then its rows are of the past."""

    async def queue(self) -> QueueReply:
        """Return the queue, with the predicted start of each item."""
        items, playing = await self._read()
        if items is None:
            raise _unavailable()
        known = await self._catalog.by_manifest([media.id for media in items])
        shown = [
            QueueItem(
                uid=media.uid,
                video_id=known[media.id].video_id if media.id in known else media.id,
                title=media.title,
                duration_seconds=media.seconds,
                queued_by=media.queued_by,
            )
            for media in items
        ]
        self._predict(shown, playing)
        now = None if playing is None else await self._shown(playing, items)
        return QueueReply(shown, now, sum(item.duration_seconds or 0 for item in shown))

    def _predict(self, items: list[QueueItem], playing: Media | None) -> None:
        """Set the start of the current item and of the next ones, as far as durations are known."""
        if playing is None or playing.is_paused:
            return
        place = next((at for at, item in enumerate(items) if item.uid == playing.uid), None)
        if place is None or playing.uid is None:
            return
        start: int | None = self._stores.now() - round(playing.current_time * 1_000)
        for item in items[place:]:
            item.starts_at = None if start is None else SECONDS.format(start)
            if start is None or item.duration_seconds is None:
                start = None
            else:
                start += item.duration_seconds * 1_000

    async def playing(self) -> Media | None:
        """Return the current item as the robot shows it, or None."""
        return (await self._read())[1]

    async def now_playing(self) -> NowPlaying | None:
        """Return the current item, or None."""
        items, playing = await self._read()
        return None if playing is None else await self._shown(playing, items or [])

    async def current(self) -> NowPlaying:
        """Return the current item. Raises RobotUnavailableError or NoCurrentItemError."""
        items, playing = await self._read()
        if playing is not None:
            return await self._shown(playing, items or [])
        if items is None:
            raise _unavailable()
        raise NoCurrentItemError("Nothing is playing in the channel.")

    async def uids_without_current(self) -> list[int | str]:
        """Return the items of the queue except the current one."""
        items, playing = await self._read()
        if items is None:
            raise _unavailable()
        return [
            media.uid
            for media in items
            if media.uid is not None and (playing is None or media.uid != playing.uid)
        ]

    async def exists(self) -> bool:
        """Return whether the robot has shown the queue at all."""
        return (await self._read())[0] is not None

    async def video_id(self, media_id: str) -> str:
        """Return the id of the catalog's item with this manifest, or the media's own."""
        known = await self._catalog.by_manifest([media_id])
        return known[media_id].video_id if media_id in known else media_id

    async def _shown(self, media: Media, items: list[Media]) -> NowPlaying:
        queued = next((item for item in items if item.uid == media.uid), media)
        return NowPlaying(
            uid=media.uid,
            video_id=await self.video_id(media.id),
            title=media.title,
            duration_seconds=media.seconds,
            current_time=media.current_time,
            paused=media.is_paused,
            queued_by=media.queued_by or queued.queued_by,
        )

    async def _read(self) -> tuple[list[Media] | None, Media | None]:
        """Return the queue, None without one, and the current item."""
        if self._rows is None or self.is_stopped:
            return None, None
        try:
            items, current = await self._rows.rows((ITEMS, CURRENT))
        except EngineError as error:
            raise _unavailable() from error
        queued = None if items is None else foreign_json(items.value)
        playing = None if current is None else read_media(foreign_json(current.value))
        if not isinstance(queued, list):
            return None, playing
        return [media for each in queued if (media := read_media(each)) is not None], playing


def _unavailable() -> RobotUnavailableError:
    return RobotUnavailableError("The channel's robot has not shown its queue: is it running?")
