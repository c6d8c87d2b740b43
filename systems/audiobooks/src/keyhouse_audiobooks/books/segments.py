"""Segments of a book in their order, and the map of their durations.

Every change of segments writes the map in its own commit. It lists all segments of a book, so a
transaction reads them by it.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from keyhouse.errors import RecordError
from keyhouse.store import Store, Transaction
from keyhouse_audiobooks.records import Book, DurationMap, Segment, SegmentSpan
from keyhouse_audiobooks.schema import BOOK, DURATION_MAP, SEGMENT, SEGMENTS_IN_ORDER

__all__ = [
    "duration_map",
    "read_segments",
    "reorder_segments",
    "segments_of",
    "take_out",
    "write_segments",
]

SEGMENTS_MEMBER = "segments"
"""The member of `edited` of a book whose segments were put into order by a person."""


async def read_segments(tx: Transaction, book_id: str) -> list[Segment]:
    """Return all segments of a book: the active ones in order, then the others."""
    durations = await tx.get(DURATION_MAP, book_id=book_id)
    segments = [
        segment
        for span in (durations.segments if durations is not None else ())
        if (segment := await tx.get(SEGMENT, id=span.id)) is not None
    ]
    return sorted(segments, key=lambda each: (not each.active, each.track_number))


async def segments_of(store: Store, book_id: str) -> list[Segment]:
    """Return all segments of a book as they are at one moment."""
    return await store.transact(lambda tx: read_segments(tx, book_id))


async def write_segments(tx: Transaction, book_id: str, segments: Sequence[Segment]) -> None:
    """Write the segments of a book, with the active ones numbered in the order given, and their
    map. Segments that change places are inactive in between: a place has one segment."""
    before = await tx.get(DURATION_MAP, book_id=book_id)
    active = [each for each in segments if each.active]
    numbered = [
        replace(each, track_number=number, total_tracks=len(active))
        for number, each in enumerate(active, 1)
    ]
    inactive = [each for each in segments if not each.active]
    written = inactive + numbered
    stored = await _stored(tx, written)
    for each, old in zip(written, stored, strict=True):
        moves = old is not None and each.active and old.track_number != each.track_number
        if old is not None and moves and old.active:
            await tx.put(SEGMENT, replace(old, active=False))
    for each, old in zip(written, stored, strict=True):
        if old != each:
            await tx.put(SEGMENT, each)
    durations = duration_map(numbered, inactive, before)
    if durations != before:
        await tx.put(DURATION_MAP, durations, book_id=book_id)


async def take_out(tx: Transaction, segment: Segment) -> list[Segment]:
    """Delete a segment from its book; return the rest."""
    rest = [each for each in await read_segments(tx, segment.book_id) if each.id != segment.id]
    await tx.delete(SEGMENT, id=segment.id)
    await write_segments(tx, segment.book_id, rest)
    return rest


async def _stored(tx: Transaction, segments: Sequence[Segment]) -> list[Segment | None]:
    """Return the segments as they are stored. All that a write of them needs is read by one call of
    the engine."""
    places = tx.binding.derived(SEGMENTS_IN_ORDER).template
    return await tx.get_each(
        *[(SEGMENT, {"id": each.id}) for each in segments],
        ahead=[
            places.build({"book_id": each.book_id, "track_number": each.track_number})
            for each in segments
        ],
    )


def duration_map(
    active: Sequence[Segment], inactive: Sequence[Segment], before: DurationMap | None
) -> DurationMap:
    """Return the map of a book. Inactive segments stay where they were, so that positions in them
    can be converted."""
    known = {span.id: span for span in (before.segments if before is not None else ())}
    spans: list[SegmentSpan] = []
    offset: float = 0
    for each in active:
        spans.append(
            SegmentSpan(
                id=each.id, duration=each.duration_seconds, active=True, offset_start=offset
            )
        )
        offset = round(offset + each.duration_seconds, 3)
    for each in inactive:
        start = known[each.id].offset_start if each.id in known else 0
        spans.append(
            SegmentSpan(
                id=each.id, duration=each.duration_seconds, active=False, offset_start=start
            )
        )
    return DurationMap(segments=spans, total_duration=offset)


async def reorder_segments(tx: Transaction, book: Book, ids: Sequence[str]) -> None:
    """Put the active segments into another order; RecordError unless they are the same ones."""
    segments = await read_segments(tx, book.id)
    active = {each.id: each for each in segments if each.active}
    if len(ids) != len(active) or set(ids) != active.keys():
        raise RecordError("The new order must have the active segments, each once.")
    rest = [each for each in segments if not each.active]
    await write_segments(tx, book.id, [*(active[id] for id in ids), *rest])
    edited = sorted({*(book.edited or ()), SEGMENTS_MEMBER})
    await tx.put(BOOK, replace(book, edited=edited))
