"""A client of Streamkit's HTTP service, typed, for Python programs. It needs `httpx`, of the extra
`client`.

    with Streamkit("https://api.example/streamkit", token="…") as panel:
        note = panel.create(Note(id="ideas", title="Stream Ideas", content=""))
        note.value.content = "1. Play new game"
        panel.replace(note.value, if_match=note.etag)

A rejected request raises a StreamkitError, and a failed connection httpx's own errors. Nothing is
retried.
"""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, Generic, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from keyhouse.errors import (
    AccessError,
    CallerError,
    EngineError,
    KeyhouseError,
    RateError,
    RevisionError,
    ScopeError,
    TokenError,
)
from keyhouse.schema import Record
from keyhouse.service.errors import ClientError, ErrorMap
from keyhouse.service.http_client import HttpClient
from keyhouse.systems.streamkit.configs import Operation
from keyhouse.systems.streamkit.schema import (
    LAYOUT,
    NOTE,
    SWAP,
    TEXT_CYCLER,
    Layout,
    Note,
    SceneActivity,
    Swap,
    TextCycler,
)

Config = TextCycler | Swap | Layout | Note
C = TypeVar("C", TextCycler, Swap, Layout, Note)

RECORDS: Final[dict[type[Any], Record[Any]]] = {
    TextCycler: TEXT_CYCLER,
    Swap: SWAP,
    Layout: LAYOUT,
    Note: NOTE,
}


class StreamkitError(ClientError):
    """A request that Streamkit rejected or failed, by its HTTP `status`."""

    local: ClassVar[type[KeyhouseError]] = AccessError


class InvalidError(StreamkitError):
    """The request is invalid: 400, 413, 415, 422."""

    statuses = (400, 413, 415, 422)
    local = CallerError


class UnauthorizedError(StreamkitError):
    """The token is missing, expired, rejected, or lacks the scope: 401, 403."""

    statuses = (401, 403)

    def to_local(self, **fields: Any) -> KeyhouseError:
        kind = ScopeError if self.status == ScopeError.status else TokenError
        return kind("The service rejected the token.", reason=self.message)


class ConfigNotFoundError(StreamkitError):
    """No such config: 404."""

    statuses = (404,)


class ExistsError(StreamkitError):
    """A config of this id exists: 409."""

    statuses = (409,)
    local = RevisionError


class ChangedError(StreamkitError):
    """The config has another ETag than expected: 412. Read it again."""

    statuses = (412,)
    local = RevisionError


class TooMuchError(StreamkitError):
    """Too many requests, or the quota is used up: 429. `retry_after` is the number of seconds to
    wait."""

    statuses = (429,)
    local = RateError


class ServiceError(StreamkitError):
    """The service failed: 500 and above."""

    statuses = (500,)
    local = EngineError


_ERRORS: Final = ErrorMap(
    StreamkitError,
    InvalidError,
    UnauthorizedError,
    ConfigNotFoundError,
    ExistsError,
    ChangedError,
    TooMuchError,
    ServiceError,
)


class FetchedConfig(msgspec.Struct, Generic[C], frozen=True):
    """A config and its ETag."""

    value: C
    etag: str


class Streamkit(HttpClient):
    """One customer's view of a service: the customer is the one that the token names."""

    def __init__(
        self,
        url: str,
        *,
        token: str,
        timeout: float = 10.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        super().__init__(url, _ERRORS, token=token, timeout=timeout, transport=transport)

    def create(self, config: C) -> FetchedConfig[C]:
        """Create a config; with an empty `id`, the service generates one. ExistsError if the id is
        taken."""
        record = _record(type(config))
        response = self.request("POST", f"/configs/{record.name}", json=_plain(config))
        return FetchedConfig(record.accepted(response.json()["config"]), response.headers["etag"])

    def get(self, kind: type[C], id: str) -> FetchedConfig[C]:
        """Return a config; ConfigNotFoundError if it does not exist."""
        response = self.request("GET", _path(kind, id))
        return FetchedConfig(_record(kind).accepted(response.json()), response.headers["etag"])

    def replace(self, config: C, *, if_match: str | None = None) -> FetchedConfig[C]:
        """Replace a config. `if_match`: only if its ETag is still this one, else ChangedError."""
        headers = {} if if_match is None else {"If-Match": if_match}
        response = self.request(
            "PUT", _path(type(config), config.id), json=_plain(config), headers=headers
        )
        return FetchedConfig(
            _record(type(config)).accepted(response.json()["config"]), response.headers["etag"]
        )

    def delete(self, kind: type[C], id: str, *, if_match: str | None = None) -> bool:
        """Delete a config and return whether it existed."""
        headers = {} if if_match is None else {"If-Match": if_match}
        return bool(self.request("DELETE", _path(kind, id), headers=headers).json()["deleted"])

    def configs(self, kind: type[C], *, since: str | None = None, page: int = 1_000) -> Iterator[C]:
        """Iterate over the configs of a type by id; `since`: those with this `updatedAt` or a later
        one."""
        for plain in self._pages(kind, since=since, page=page, ids=False):
            yield _record(kind).accepted(plain)

    def ids(self, kind: type[C], *, page: int = 1_000) -> Iterator[str]:
        """Iterate over the ids of all configs of a type: any other was deleted."""
        for plain in self._pages(kind, since=None, page=page, ids=True):
            yield plain["id"]

    def batch(self, kind: type[C], operations: Sequence[Operation]) -> list[dict[str, Any]]:
        """Apply all operations, or none, and return their results: see `Create`, `Update` and
        `Delete`."""
        body = {"operations": msgspec.to_builtins(operations)}
        found: list[dict[str, Any]] = self.request(
            "POST", f"/configs/{_record(kind).name}:batch", json=body
        ).json()["results"]
        return found

    def record_scene(self, name: str) -> SceneActivity:
        """Count a switch to a scene."""
        return _scene(
            self.request("POST", "/scene-activity/record", json={"sceneName": name}).json()
        )

    def top_scenes(self, limit: int = 10) -> Sequence[SceneActivity]:
        """Return the scenes with most switches, the most used first."""
        return [
            _scene(each)
            for each in self.request("GET", "/scene-activity/top", params={"limit": limit}).json()[
                "scenes"
            ]
        ]

    def export(self) -> bytes:
        """Export all of the customer's data, as a file for `wrangler kv bulk put` and for
        `load`."""
        return self.request("GET", "/export").content

    def load(self, file: bytes) -> dict[str, Any]:
        """Import an export over stored data; return how many entries were written, unchanged and
        expired."""
        headers = {"Content-Type": "application/json"}
        counts: dict[str, Any] = self.request(
            "POST", "/import", content=file, headers=headers
        ).json()
        return counts

    def _pages(
        self, kind: type[Any], *, since: str | None, page: int, ids: bool
    ) -> Iterator[dict[str, Any]]:
        query: dict[str, Any] = {
            "limit": page,
            **({"since": since} if since else {}),
            **({"fields": "ids"} if ids else {}),
        }
        while True:
            found = self.request("GET", f"/configs/{_record(kind).name}", params=query).json()
            yield from found["configs"]
            if "cursor" not in found:
                return
            query["cursor"] = found["cursor"]


def _record(kind: type[C]) -> Record[C]:
    return RECORDS[kind]


def _path(kind: type[Any], id: str) -> str:
    return f"/configs/{RECORDS[kind].name}/{quote(id, safe='')}"


def _plain(config: Any) -> dict[str, Any]:
    plain: dict[str, Any] = RECORDS[type(config)].shown(config)
    return {name: value for name, value in plain.items() if name != "id" or value}


def _scene(plain: dict[str, Any]) -> SceneActivity:
    return SceneActivity(
        scene_name=plain["sceneName"], count=plain["count"], last_used=plain["lastUsed"]
    )
