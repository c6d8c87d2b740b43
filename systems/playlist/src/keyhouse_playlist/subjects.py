"""Commands over NATS: `kryten.playlist.cmd.<command>`, as request and reply.

A command has `requested_by`, whose role is checked, and a `correlation_id`, which the reply
repeats. A reply is `{"status": "ok" | "error", "correlation_id", …}`; whatever was sent gets one.
"""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec

from keyhouse.errors import KeyhouseError, MissingFieldError
from keyhouse.nats.endpoint import Body, Endpoint, Request
from keyhouse.service.measured_routes import measured_call
from keyhouse.service.metrics import OperationMetrics
from keyhouse.service.operation_log import OperationLog, error_code
from keyhouse_playlist.accounts.roles import ADMIN, ROLE_SCOPES, WRITE, Roles
from keyhouse_playlist.accounts.sessions import CommandSender
from keyhouse_playlist.catalog.refresh import FileSource, Refresh, RunBlocking
from keyhouse_playlist.channel.messages import FailedItem
from keyhouse_playlist.channel.pushes import ChannelPushes
from keyhouse_playlist.messages import Username
from keyhouse_playlist.names import checked_username, comparable_name
from keyhouse_playlist.schema import BLESSED, ApplyMode

__all__ = ["KRYTEN", "Commands"]

KRYTEN: Final = "kryten."
"""Before all subjects of the channel: commands, events, and those of its robot."""
PREFIX: Final = "kryten.playlist.cmd"
_encode = msgspec.json.Encoder().encode


class CommandReply(msgspec.Struct, kw_only=True):
    """`correlation_id` is that of the command, whatever JSON it is."""

    status: Literal["ok", "error"] = "ok"
    correlation_id: Any = None


class RefreshReply(CommandReply, kw_only=True):
    snapshot_id: str
    item_count: int


class PushReply(CommandReply, kw_only=True):
    apply_id: str
    enqueued_count: int
    failed: list[FailedItem]


class BlessedReply(CommandReply, kw_only=True):
    blessed: list[str]


class CommandError(msgspec.Struct):
    code: str
    message: str
    details: dict[str, str] = {}


class RejectedReply(CommandReply, kw_only=True):
    error: CommandError


class _Command(msgspec.Struct):
    requested_by: Username | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        if not isinstance(self.requested_by, msgspec.UnsetType):
            self.requested_by = checked_username(self.requested_by)


C = TypeVar("C", bound=_Command)


class _Apply(_Command):
    playlist_id: str = ""
    mode: ApplyMode = "append"


class _Named(_Command):
    username: Username | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.username, msgspec.UnsetType):
            self.username = checked_username(self.username)


class _Refresh(_Command):
    file: str | None = None
    allow_empty: bool = False


class Commands:
    def __init__(
        self,
        roles: Roles,
        pushes: ChannelPushes,
        refresh: Refresh,
        run: RunBlocking,
        metrics: OperationMetrics,
        log: OperationLog,
    ) -> None:
        self._roles = roles
        self._pushes = pushes
        self._refresh = refresh
        self._run = run
        self._metrics = metrics
        self._log = log

    def endpoints(self) -> Sequence[Endpoint]:
        return [
            self._endpoint("catalog_refresh", _Refresh, ADMIN, self.catalog_refresh),
            self._endpoint("queue_apply", _Apply, WRITE, self.queue_apply),
            self._endpoint("blessed_add", _Named, ADMIN, self.blessed_add),
            self._endpoint("blessed_remove", _Named, ADMIN, self.blessed_remove),
            self._endpoint("blessed_list", _Command, WRITE, self.blessed_list),
        ]

    async def catalog_refresh(self, command: _Refresh, sender: CommandSender) -> RefreshReply:
        """Read the catalog's source again, or a file on the service's machine; for admins."""
        path = None if command.file is None else Path(command.file)
        source = None if path is None else FileSource(path, self._run)
        snapshot = await self._refresh.refresh(source, allow_empty=command.allow_empty)
        return RefreshReply(snapshot_id=snapshot.snapshot_id, item_count=snapshot.item_count)

    async def queue_apply(self, command: _Apply, sender: CommandSender) -> PushReply:
        """Push a playlist to the queue; for the blessed, `hard_replace` for admins."""
        if not command.playlist_id:
            raise MissingFieldError("Missing required field: playlist_id")
        reply = await self._pushes.apply(command.playlist_id, command.mode, sender)
        return PushReply(
            apply_id=reply.apply_id, enqueued_count=reply.enqueued_count, failed=reply.failed
        )

    async def blessed_add(self, command: _Named, sender: CommandSender) -> BlessedReply:
        """Bless a user; for admins."""
        return BlessedReply(blessed=await self._roles.add(BLESSED, _name(command)))

    async def blessed_remove(self, command: _Named, sender: CommandSender) -> BlessedReply:
        """Take a user's blessing back; for admins."""
        return BlessedReply(blessed=await self._roles.remove(BLESSED, _name(command)))

    async def blessed_list(self, command: _Command, sender: CommandSender) -> BlessedReply:
        """List the blessed; for the blessed and admins."""
        return BlessedReply(blessed=await self._roles.names(BLESSED))

    async def _sender(self, command: _Command) -> CommandSender:
        if isinstance(command.requested_by, msgspec.UnsetType):
            raise MissingFieldError("Missing required field: requested_by")
        role = await self._roles.of(command.requested_by)
        return CommandSender(
            tenant=comparable_name(command.requested_by),
            username=command.requested_by,
            role=role,
            scopes=frozenset(ROLE_SCOPES[role]),
        )

    def _endpoint(
        self,
        name: str,
        kind: type[C],
        scope: str,
        run: Callable[[C, CommandSender], Awaitable[CommandReply]],
    ) -> Endpoint:
        read = Body(kind).read

        async def call(command: C, caller: CommandSender) -> CommandReply:
            caller.require(scope)
            return await run(command, caller)

        measured = measured_call(name, call, self._metrics, self._log, ())

        async def handler(request: Request) -> bytes:
            caller: CommandSender | None = None
            try:
                command = read(request.data)
                caller = await self._sender(command)
                reply: CommandReply = await measured(command=command, caller=caller)
            except Exception as error:
                if caller is None:
                    self._metrics.failed("", error_code(error))
                user = "" if caller is None else caller.tenant
                self._log.failed(name, user, error, answered=bool(request.reply), fields={})
                reply = _rejected(error)
            reply.correlation_id = _correlation_id(request.data)
            return _encode(reply)

        return Endpoint(name=name, subject=f"{PREFIX}.{name}", handler=handler)


def _rejected(error: Exception) -> CommandReply:
    message = "Unexpected error; see the log."
    if isinstance(error, KeyhouseError):
        message = str(error) if error.status < 500 else error.sentence
    rejected = CommandError(error_code(error).lower(), message)
    return RejectedReply(status="error", error=rejected)


class _Correlated(msgspec.Struct):
    correlation_id: Any = None


_read_correlated: Final = Body(_Correlated).read


def _correlation_id(data: bytes) -> object:
    try:
        return _read_correlated(data).correlation_id
    except KeyhouseError:
        return None


def _name(command: _Named) -> str:
    if isinstance(command.username, msgspec.UnsetType):
        raise MissingFieldError("Missing required field: username")
    return command.username
