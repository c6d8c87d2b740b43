"""A worker's side of its parent: what it has inherited, and the messages between the two.

Parent and worker share a socket pair, with one JSON message in a line. The worker asks for the
embedded NATS server, which the parent runs, and says when it is ready. The parent answers, and may
send `Retire`: another process has taken the worker's place, so it drains without closing the
connections of clients that are about to send (`Http1Server.drain`). The end of the stream is the
end of the parent.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from socket import socket
from typing import Any, Final

import msgspec

from keyhouse.serve.data_dir import DataDir
from keyhouse.serve.listener import ConnectionShare
from keyhouse.serve.nats_access import NatsAddresses
from keyhouse.service.worker import Worker

__all__ = ["FROM_WORKER", "Done", "Parent", "Ready", "Retire", "SetPublic", "StartNats", "encode"]


class StartNats(msgspec.Struct, frozen=True, tag=True):
    """Answered with NatsAddresses."""

    jetstream: bool


class SetPublic(msgspec.Struct, frozen=True, tag=True):
    """Answered with Done."""

    subjects: list[str]
    mappings: dict[str, str]


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The worker serves: `addresses` are those of the service."""

    addresses: dict[str, Any]


class Done(msgspec.Struct, frozen=True, tag=True):
    pass


class Retire(msgspec.Struct, frozen=True, tag=True):
    pass


FROM_WORKER: Final = msgspec.json.Decoder(StartNats | SetPublic | Ready)
_FROM_PARENT: Final = msgspec.json.Decoder(NatsAddresses | Done | Retire)

_LINE_BYTES_MAX: Final = 2**20


def encode(message: msgspec.Struct) -> bytes:
    return msgspec.json.encode(message) + b"\n"


class Parent:
    """The parent of this worker, which is a NatsOwner while `connected`. `serial` differs from
    that of every other process of the same parent. `bound` is None if HTTP is off."""

    def __init__(
        self,
        worker: Worker,
        serial: int,
        data: DataDir,
        bound: socket | None,
        share: ConnectionShare,
        link: socket,
    ) -> None:
        self.share = share
        self.worker = worker
        self.serial = serial
        self.data = data
        self.bound = bound
        self._link = link
        self.inherited: ExitStack | None = None
        """Resources of the parent: a worker never closes them."""
        self._writer: asyncio.StreamWriter | None = None
        self._answers: asyncio.Queue[NatsAddresses | Done] = asyncio.Queue()
        self._asking = asyncio.Lock()

    @property
    def others_serve(self) -> bool:
        """True unless this is the first process: only then do clients wait for it."""
        return self.serial > 1

    @asynccontextmanager
    async def connected(self, retire: Callable[[], None]) -> AsyncIterator[None]:
        """Exchange messages until the block ends; `retire` is called when the parent asks for it.
        Exits at once when the parent has died: nobody would replace this process."""
        reader, self._writer = await asyncio.open_connection(sock=self._link, limit=_LINE_BYTES_MAX)
        reading = asyncio.create_task(self._read(reader, retire))
        try:
            yield
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading
            self._writer.close()
            with suppress(OSError):
                await self._writer.wait_closed()

    async def _read(self, reader: asyncio.StreamReader, retire: Callable[[], None]) -> None:
        while line := await reader.readline():
            message = _FROM_PARENT.decode(line)
            if isinstance(message, Retire):
                retire()
            else:
                self._answers.put_nowait(message)
        os._exit(1)

    async def _send(self, message: msgspec.Struct) -> None:
        assert self._writer is not None, "it is connected"
        self._writer.write(encode(message))
        await self._writer.drain()

    async def _ask(self, message: msgspec.Struct) -> NatsAddresses | Done:
        async with self._asking:
            await self._send(message)
            return await self._answers.get()

    async def start_nats(self, *, jetstream: bool) -> NatsAddresses:
        addresses = await self._ask(StartNats(jetstream))
        assert isinstance(addresses, NatsAddresses)
        return addresses

    async def set_public(self, subjects: Sequence[str], mappings: Mapping[str, str]) -> None:
        await self._ask(SetPublic([*subjects], {**mappings}))

    async def ready(self, addresses: msgspec.Struct) -> None:
        await self._send(Ready(msgspec.structs.asdict(addresses)))
