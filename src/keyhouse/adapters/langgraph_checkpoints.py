"""A LangGraph checkpointer on a store: threads of a graph, their checkpoints and pending writes.

    async with open_store(CHECKPOINTS, "sqlite:threads.db", "main") as store:
        graph = builder.compile(checkpointer=KeyhouseSaver(store))
        await graph.ainvoke(…, {"configurable": {"thread_id": "1"}})

A checkpoint and its parts are one commit. A serialized state can be larger than a value: it is cut
into parts of 256 KiB, so the limit is that of a commit. Only the async methods exist.

Keys: `checkpoint:{thread}:{ns}:{id}`, `part:{thread}:{ns}:{id}:{part}`,
`write:{thread}:{ns}:{id}:{task}:{place}` and `write-part:…:{place}:{part}`; names over 100 bytes
are hashed there.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from msgspec import Struct

from keyhouse.adapters.name_segment import name_segment
from keyhouse.schema import Meta, Record, Schema, Space
from keyhouse.store import Store, Transaction

__all__ = ["CHECKPOINTS", "KeyhouseSaver"]

_PART_BYTES: Final = 256 * 1_024
_NAME_BYTES_MAX: Final = 100
_PLACE_OFFSET: Final = 100
"""Added to the place of a write in its key: special channels have negative ones."""


class StoredCheckpoint(Struct, kw_only=True):
    """The head of a checkpoint; its serialized state is in `parts` further rows."""

    thread: str
    ns: str
    id: str
    parent: str | None
    kind: str
    parts: int
    metadata_kind: str
    metadata: bytes


class CheckpointPart(Struct, kw_only=True):
    """A piece of a serialized value."""

    thread: str
    ns: str
    id: str
    part: int
    data: bytes


class TaskWrite(Struct, kw_only=True):
    """A write of a task after a checkpoint."""

    thread: str
    ns: str
    id: str
    task: str
    path: str
    place: int
    channel: str
    kind: str
    parts: int


class TaskWritePart(Struct, kw_only=True):
    """A piece of the value of a write."""

    thread: str
    ns: str
    id: str
    task: str
    place: int
    part: int
    data: bytes


def _name(text: str) -> str:
    return name_segment(text, bytes_max=_NAME_BYTES_MAX)


_NAMES: Final[Any] = {
    "thread_name": lambda stored: _name(stored.thread),
    "ns_name": lambda stored: _name(stored.ns),
    "id_name": lambda stored: _name(stored.id),
}
_ADDRESS: Final = "{thread_name}:{ns_name}:{id_name}"
CHECKPOINT: Final = Record(
    StoredCheckpoint, f"checkpoint:{_ADDRESS}", name="checkpoint", fields=_NAMES
)
PART: Final = Record(CheckpointPart, f"part:{_ADDRESS}:{{part:06d}}", name="part", fields=_NAMES)
_WRITE_NAMES: Final[Any] = {
    **_NAMES,
    "task_name": lambda stored: _name(stored.task),
    "key_place": lambda stored: stored.place + _PLACE_OFFSET,
}
_WRITE_ADDRESS: Final = f"{_ADDRESS}:{{task_name}}:{{key_place:06d}}"
WRITE: Final = Record(TaskWrite, f"write:{_WRITE_ADDRESS}", name="write", fields=_WRITE_NAMES)
WRITE_PART: Final = Record(
    TaskWritePart,
    f"write-part:{_WRITE_ADDRESS}:{{part:06d}}",
    name="write part",
    fields=_WRITE_NAMES,
)
CHECKPOINTS: Final = Schema(
    "checkpoints", CHECKPOINT, PART, WRITE, WRITE_PART, meta=Meta(), space=Space("an application")
)


class KeyhouseSaver(BaseCheckpointSaver[int]):
    """A LangGraph checkpointer on a store of the schema `CHECKPOINTS`."""

    def __init__(self, store: Store, *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(serde=serde)
        self.store = store

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        names = _names(config)
        if (id := get_checkpoint_id(config)) is not None and id:
            checkpoint = await self.store.get(CHECKPOINT, **names, id_name=_name(id))
            return None if checkpoint is None else await self._tuple(checkpoint)
        newest = self.store.scan(CHECKPOINT, reverse=True, limit=1, **names)
        async for entry in newest:
            return await self._tuple(entry.record)
        return None

    async def alist(
        self,
        config: Any,
        *,
        filter: dict[str, Any] | None = None,
        before: Any = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        heads = [head async for head in self._heads(config)]
        heads.sort(key=lambda head: head.id, reverse=True)
        before_id = None if before is None else get_checkpoint_id(before)
        only_id = None if config is None else get_checkpoint_id(config)
        left = limit
        for head in heads:
            if (before_id and head.id >= before_id) or (only_id and head.id != only_id):
                continue
            metadata = self.serde.loads_typed((head.metadata_kind, head.metadata))
            if any(metadata.get(name) != value for name, value in (filter or {}).items()):
                continue
            if left is not None:
                if left <= 0:
                    return
                left -= 1
            yield await self._tuple(head)

    async def aput(
        self,
        config: Any,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Any:
        place = config["configurable"]
        thread, ns, id = str(place["thread_id"]), place.get("checkpoint_ns", ""), checkpoint["id"]
        kind, data = self.serde.dumps_typed(checkpoint)
        parts = _pieces(data)
        metadata_kind, metadata_data = self.serde.dumps_typed(
            get_checkpoint_metadata(config, metadata)
        )
        head = StoredCheckpoint(
            thread=thread,
            ns=ns,
            id=id,
            parent=place.get("checkpoint_id"),
            kind=kind,
            parts=len(parts),
            metadata_kind=metadata_kind,
            metadata=metadata_data,
        )

        async def work(tx: Transaction) -> None:
            await tx.put(CHECKPOINT, head)
            for number, piece in enumerate(parts):
                await tx.put(
                    PART, CheckpointPart(thread=thread, ns=ns, id=id, part=number, data=piece)
                )

        await self.store.transact(work)
        return _config(thread, ns, id)

    async def aput_writes(
        self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        place = config["configurable"]
        found = []
        for number, (channel, value) in enumerate(writes):
            kind, data = self.serde.dumps_typed(value)
            pieces = _pieces(data)
            write = TaskWrite(
                thread=str(place["thread_id"]),
                ns=place.get("checkpoint_ns", ""),
                id=place["checkpoint_id"],
                task=task_id,
                path=task_path,
                place=WRITES_IDX_MAP.get(channel, number),
                channel=channel,
                kind=kind,
                parts=len(pieces),
            )
            found.append((write, pieces))

        async def work(tx: Transaction) -> None:
            for write, pieces in found:
                address = _write_names(write)
                if write.place >= 0 and await tx.get(WRITE, **address) is not None:
                    continue
                await tx.put(WRITE, write)
                for number, piece in enumerate(pieces):
                    await tx.put(WRITE_PART, _write_part(write, number, piece))

        await self.store.transact(work)

    async def adelete_thread(self, thread_id: str) -> None:
        name = _name(str(thread_id))
        records: tuple[Record[Any], ...] = (WRITE, WRITE_PART, PART, CHECKPOINT)
        for record in records:
            async for entry in self.store.scan(record, thread_name=name):
                await self.store.delete(record, **entry.fields)

    async def _heads(self, config: Any) -> AsyncIterator[StoredCheckpoint]:
        """Iterate over the checkpoints of a namespace, a thread, or the whole space."""
        names: dict[str, Any] = {}
        if config is not None:
            place = config["configurable"]
            names["thread_name"] = _name(str(place["thread_id"]))
            if place.get("checkpoint_ns") is not None:
                names["ns_name"] = _name(place["checkpoint_ns"])
        async for entry in self.store.scan(CHECKPOINT, **names):
            yield entry.record

    async def _tuple(self, head: StoredCheckpoint) -> CheckpointTuple:
        names = _names(_config(head.thread, head.ns, head.id)) | {"id_name": _name(head.id)}
        parts = await self.store.get_many(
            PART, [{**names, "part": number} for number in range(head.parts)]
        )
        data = b"".join(part.data for part in parts if part is not None)
        writes = [entry.record async for entry in self.store.scan(WRITE, **names)]
        writes.sort(key=lambda write: (write.path, write.task, write.place))
        return CheckpointTuple(
            config=_config(head.thread, head.ns, head.id),
            checkpoint=self.serde.loads_typed((head.kind, data)),
            metadata=self.serde.loads_typed((head.metadata_kind, head.metadata)),
            parent_config=_config(head.thread, head.ns, head.parent) if head.parent else None,
            pending_writes=[
                (write.task, write.channel, await self._written(write)) for write in writes
            ],
        )

    async def _written(self, write: TaskWrite) -> Any:
        address = _write_names(write)
        parts = await self.store.get_many(
            WRITE_PART, [{**address, "part": number} for number in range(write.parts)]
        )
        data = b"".join(part.data for part in parts if part is not None)
        return self.serde.loads_typed((write.kind, data))


def _pieces(data: bytes) -> list[bytes]:
    return [data[start : start + _PART_BYTES] for start in range(0, len(data), _PART_BYTES)]


def _write_part(write: TaskWrite, number: int, data: bytes) -> TaskWritePart:
    return TaskWritePart(
        thread=write.thread,
        ns=write.ns,
        id=write.id,
        task=write.task,
        place=write.place,
        part=number,
        data=data,
    )


def _names(config: Any) -> dict[str, Any]:
    place = config["configurable"]
    return {
        "thread_name": _name(str(place["thread_id"])),
        "ns_name": _name(place.get("checkpoint_ns", "")),
    }


def _write_names(write: TaskWrite) -> dict[str, Any]:
    return {
        "thread_name": _name(write.thread),
        "ns_name": _name(write.ns),
        "id_name": _name(write.id),
        "task_name": _name(write.task),
        "key_place": write.place + _PLACE_OFFSET,
    }


def _config(thread: str, ns: str, id: str) -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": id}}
