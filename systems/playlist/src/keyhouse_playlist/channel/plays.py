"""Counting plays: by the robot's event at each start, and from its bucket for a start whose event
no process received.

Events of NATS are delivered at most once: those published while no process runs, or while the
connection is lost, are gone. The item that is then playing is counted from the bucket; one that has
ended by then is not.
"""

import re
from datetime import datetime
from typing import Any

import msgspec
import structlog

from keyhouse.errors import KeyhouseError
from keyhouse.nats.bus import Bus
from keyhouse_playlist.channel.queue import Channel, read_media
from keyhouse_playlist.channel.statistics import ChannelStatistics
from keyhouse_playlist.stores import foreign_json

__all__ = ["PlayCounter", "subject_token"]

TIME_MAX = 2**53
"""Milliseconds since 1970 in the robot's events: beyond, a number is not a time."""

_log = structlog.get_logger("keyhouse.playlist")


class PlayCounter:
    """`name` is the channel's."""

    def __init__(
        self,
        channel: Channel,
        statistics: ChannelStatistics,
        bus: Bus,
        *,
        name: str,
        namespace: str,
    ) -> None:
        self.channel = channel
        self._statistics = statistics
        self._bus = bus
        self._name = name
        self._group = f"kryten.playlist.plays.{subject_token(namespace)}"
        self.seen: tuple[object, str] | None = None

    async def run(self) -> None:
        """Count each item that the channel starts, without end. One of all processes counts it."""
        if not self._bus.is_on:
            return
        subject = f"kryten.events.cytube.{subject_token(self._name)}.changemedia"
        async with self._bus.subscribe(subject, queue=self._group) as messages:
            async for message in messages:
                try:
                    await self._count(message.data)
                except KeyhouseError as error:
                    _log.error("play not counted", error=str(error))

    async def reconcile(self) -> None:
        """Count the item that is playing, if its start was not counted."""
        try:
            playing = await self.channel.playing()
            if playing is None or playing.uid is None:
                return
            seen = (playing.uid, playing.id)
            if seen == self.seen:
                return
            video_id = await self.channel.video_id(playing.id)
            missed = await self._statistics.count_missed_play(
                self._name, playing.uid, video_id, playing.seconds, media_id=playing.id
            )
            self.seen = seen
        except KeyhouseError as error:
            _log.error("play not reconciled", error=str(error))
            return
        if missed:
            _log.info("play counted from the robot's bucket", video_id=video_id)

    async def _count(self, data: bytes) -> None:
        event = foreign_json(data)
        payload = event.get("payload", event) if isinstance(event, dict) else None
        media = read_media(payload)
        if media is None:
            return
        start = _start_second(event, payload, media.current_time)
        video_id = await self.channel.video_id(media.id)
        await self._statistics.count_play(
            self._name, media.uid, video_id, media.seconds, start, media_id=media.id
        )


def _start_second(event: dict[str, Any], payload: Any, current_time: float) -> int:
    """Return the second at which the item started, from the event's time."""
    at = payload.get("time")
    if isinstance(at, int | float) and 0 < at < TIME_MAX:
        return int(at / 1_000 - current_time)
    try:
        stamp = msgspec.convert(event.get("timestamp"), datetime)
    except msgspec.ValidationError:
        return 0
    return int(stamp.timestamp() - current_time)


def subject_token(text: str) -> str:
    """Return a text as one token of a NATS subject, as `kryten-py` writes channels."""
    return re.sub(r"[^\w-]", "", text.lower().replace(" ", "-")) or "default"
