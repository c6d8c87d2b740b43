"""Commands over NATS: `kryten.playlist.cmd.<command>`, as request and reply.

A command has `requested_by`, whose role is checked, and a `correlation_id`, which the reply
repeats. A reply is `{"status": "ok" | "error", "correlation_id", …}`; whatever was sent gets one.
"""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from keyhouse.errors import KeyhouseError, MissingFieldError
from keyhouse.nats.endpoint import Body, Endpoint, Request
from keyhouse.systems.playlist.errors import RoleError
from keyhouse.systems.playlist.messages import Username
from keyhouse.systems.playlist.names import checked_username
from keyhouse.systems.playlist.queue_apply import QueueApply
from keyhouse.systems.playlist.refresh import FileSource, Refresh, RunBlocking
from keyhouse.systems.playlist.roles import ROLE_SCOPES, Roles
from keyhouse.systems.playlist.schema import BLESSED, ApplyMode

__all__ = ["Commands"]

PREFIX: Final = "kryten.playlist.cmd"
_log = structlog.get_logger("keyhouse.playlist")
_encode = msgspec.json.Encoder().encode

Result = dict[str, Any]


class _Command(msgspec.Struct):
    requested_by: Username | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        if not isinstance(self.requested_by, msgspec.UnsetType):
            self.requested_by = checked_username(self.requested_by)


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
    def __init__(self, roles: Roles, apply: QueueApply, refresh: Refresh, run: RunBlocking) -> None:
        self._roles = roles
        self._apply = apply
        self._refresh = refresh
        self._run = run

    def endpoints(self) -> Sequence[Endpoint]:
        return [
            self._endpoint("catalog_refresh", self.catalog_refresh),
            self._endpoint("queue_apply", self.queue_apply),
            self._endpoint("blessed_add", self.blessed_add),
            self._endpoint("blessed_remove", self.blessed_remove),
            self._endpoint("blessed_list", self.blessed_list),
        ]

    async def catalog_refresh(self, data: bytes) -> Result:
        """Read the catalog's source again, or a file on the service's machine; for admins."""
        command = _read(data, _Refresh)
        await self._require(command, "admin")
        path = None if command.file is None else Path(command.file)
        source = None if path is None else FileSource(path, self._run)
        snapshot = await self._refresh.refresh(source, allow_empty=command.allow_empty)
        return {"snapshot_id": snapshot.snapshot_id, "item_count": snapshot.item_count}

    async def queue_apply(self, data: bytes) -> Result:
        """Push a playlist to the queue; for the blessed, `hard_replace` for admins."""
        command = _read(data, _Apply)
        await self._require(command, "admin" if command.mode == "hard_replace" else "write")
        if not command.playlist_id:
            raise MissingFieldError("Missing required field: playlist_id")
        reply = await self._apply.apply(command.playlist_id, command.mode)
        return {
            "apply_id": reply.apply_id,
            "enqueued_count": reply.enqueued_count,
            "failed": reply.failed,
        }

    async def blessed_add(self, data: bytes) -> Result:
        """Bless a user; for admins."""
        command = _read(data, _Named)
        await self._require(command, "admin")
        return {"blessed": await self._roles.add(BLESSED, _name(command))}

    async def blessed_remove(self, data: bytes) -> Result:
        """Take a user's blessing back; for admins."""
        command = _read(data, _Named)
        await self._require(command, "admin")
        return {"blessed": await self._roles.remove(BLESSED, _name(command))}

    async def blessed_list(self, data: bytes) -> Result:
        """List the blessed; for the blessed and admins."""
        await self._require(_read(data, _Command), "write")
        return {"blessed": await self._roles.names(BLESSED)}

    async def _require(self, command: _Command, scope: str) -> None:
        if isinstance(command.requested_by, msgspec.UnsetType):
            raise MissingFieldError("Missing required field: requested_by")
        role = await self._roles.of(command.requested_by)
        if scope not in ROLE_SCOPES[role]:
            raise RoleError(
                "The role of requested_by does not allow this.",
                requested_by=command.requested_by,
                role=role,
            )

    def _endpoint(self, name: str, run: Callable[[bytes], Awaitable[Result]]) -> Endpoint:
        async def handler(request: Request) -> bytes:
            correlation_id = _correlation_id(request.data)
            try:
                reply = {
                    "status": "ok",
                    "correlation_id": correlation_id,
                    **await run(request.data),
                }
            except KeyhouseError as error:
                shown = str(error) if error.status < 500 else error.sentence
                reply = _error(correlation_id, error.code.lower(), shown)
            except Exception:
                _log.exception("command failed", command=name)
                reply = _error(correlation_id, "internal_error", "Unexpected error; see the log.")
            return _encode(reply)

        return Endpoint(name=name, subject=f"{PREFIX}.{name}", handler=handler)


def _error(correlation_id: object, code: str, message: str) -> Result:
    error = {"code": code, "message": message, "details": {}}
    return {"status": "error", "correlation_id": correlation_id, "error": error}


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


def _read(data: bytes, kind: type[Any]) -> Any:
    return Body(kind).read(data)
