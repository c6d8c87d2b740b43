"""A client of Streamkit's HTTP service, typed, for Python programs. It needs `httpx`, of the extra `client`.

    with Streamkit("https://api.example/streamkit", token="…") as panel:
        note = panel.create(Note(id="ideas", title="Stream Ideas", content=""))
        note.value.content = "1. Play new game"
        panel.replace(note.value, if_match=note.etag)

A refusal is an exception by its kind, and a connection that fails is httpx's own. Nothing is repeated by itself.
"""

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from keyhouse.schema import Record
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


class StreamkitError(Exception):
    """The service said no. `status` and `code` are for programs, `detail` for people, `fields` is what varies."""

    def __init__(
        self, problem: dict[str, Any], status: int, retry_after: float | None = None
    ) -> None:
        self.status = status
        self.code = str(problem.get("code", ""))
        self.detail = str(problem.get("detail", ""))
        self.fields: dict[str, Any] = problem.get("fields", {})
        varies = ", ".join(f"{name}={value!r}" for name, value in self.fields.items())
        super().__init__(
            f"{status}: {self.detail or 'no reason was given'}" + (f" ({varies})" if varies else "")
        )
        self.request_id = str(problem.get("requestId", ""))
        self.retry_after = retry_after


class InvalidError(StreamkitError):
    """What was sent can't be: 400, 413, 415, 422."""


class UnauthorizedError(StreamkitError):
    """The token is missing, expired or not accepted, or does not allow this: 401, 403."""


class NotFoundError(StreamkitError):
    """There is no such config: 404."""


class ExistsError(StreamkitError):
    """There is a config of this id: 409."""


class ChangedError(StreamkitError):
    """The config is not in the state that was expected: 412. Read it again."""


class TooMuchError(StreamkitError):
    """Too many requests, or no room: 429. `retry_after` says after how many seconds to ask again."""


class ServiceError(StreamkitError):
    """The service can't answer now: 500 and up."""


_KINDS: Final[dict[int, type[StreamkitError]]] = {
    400: InvalidError,
    401: UnauthorizedError,
    403: UnauthorizedError,
    404: NotFoundError,
    409: ExistsError,
    412: ChangedError,
    413: InvalidError,
    415: InvalidError,
    422: InvalidError,
    429: TooMuchError,
}


class Found(msgspec.Struct, Generic[C], frozen=True):
    """A config, and the tag of the state it is in."""

    value: C
    etag: str


class Streamkit:
    """One customer's view of a service: the customer is whom the token names."""

    def __init__(
        self,
        url: str,
        *,
        token: str,
        timeout: float = 10.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        self._http = httpx.Client(
            base_url=url, headers=headers, timeout=timeout, transport=transport
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def create(self, config: C) -> Found[C]:
        """Make it. With an empty `id`, the service chooses one. ExistsError when there is one of its id."""
        record = _record(type(config))
        answer = self._ask("POST", f"/configs/{record.name}", json=_plain(config))
        return Found(record.accepted(answer.json()["config"]), answer.headers["etag"])

    def get(self, kind: type[C], id: str) -> Found[C]:
        """NotFoundError when there is none."""
        answer = self._ask("GET", _path(kind, id))
        return Found(_record(kind).accepted(answer.json()), answer.headers["etag"])

    def replace(self, config: C, *, if_match: str | None = None) -> Found[C]:
        """Put it in place of the one of its id. `if_match`: only if that is still in this state, else ChangedError."""
        headers = {} if if_match is None else {"If-Match": if_match}
        answer = self._ask(
            "PUT", _path(type(config), config.id), json=_plain(config), headers=headers
        )
        return Found(
            _record(type(config)).accepted(answer.json()["config"]), answer.headers["etag"]
        )

    def delete(self, kind: type[C], id: str, *, if_match: str | None = None) -> bool:
        """Whether there was one."""
        headers = {} if if_match is None else {"If-Match": if_match}
        return bool(self._ask("DELETE", _path(kind, id), headers=headers).json()["deleted"])

    def configs(self, kind: type[C], *, since: str | None = None, page: int = 1_000) -> Iterator[C]:
        """All of a type, or those with this `updatedAt` or a later one, in the order of their ids, page by page."""
        for plain in self._pages(kind, since=since, page=page, ids=False):
            yield _record(kind).accepted(plain)

    def ids(self, kind: type[C], *, page: int = 1_000) -> Iterator[str]:
        """The ids of all of a type: what is not among them is gone."""
        for plain in self._pages(kind, since=None, page=page, ids=True):
            yield plain["id"]

    def batch(self, kind: type[C], operations: Sequence[Operation]) -> list[dict[str, Any]]:
        """All of the operations, or none: see `Create`, `Update` and `Delete`. What became of each."""
        body = {"operations": msgspec.to_builtins(operations)}
        found: list[dict[str, Any]] = self._ask(
            "POST", f"/configs/{_record(kind).name}:batch", json=body
        ).json()["results"]
        return found

    def record_scene(self, name: str) -> SceneActivity:
        """Count a switch to a scene."""
        return _scene(self._ask("POST", "/scene-activity/record", json={"sceneName": name}).json())

    def top_scenes(self, limit: int = 10) -> Sequence[SceneActivity]:
        """The scenes that were switched to most often, the most used first."""
        return [
            _scene(each)
            for each in self._ask("GET", "/scene-activity/top", params={"limit": limit}).json()[
                "scenes"
            ]
        ]

    def export(self) -> bytes:
        """All that the customer keeps, as a file that `wrangler kv bulk put` reads, and so does `load`."""
        return self._ask("GET", "/export").content

    def load(self, file: bytes) -> dict[str, Any]:
        """Put an export over what is there; how much was written, was there already, and had expired."""
        headers = {"Content-Type": "application/json"}
        done: dict[str, Any] = self._ask("POST", "/import", content=file, headers=headers).json()
        return done

    def _pages(
        self, kind: type[Any], *, since: str | None, page: int, ids: bool
    ) -> Iterator[dict[str, Any]]:
        query: dict[str, Any] = {
            "limit": page,
            **({"since": since} if since else {}),
            **({"fields": "ids"} if ids else {}),
        }
        while True:
            found = self._ask("GET", f"/configs/{_record(kind).name}", params=query).json()
            yield from found["configs"]
            if "cursor" not in found:
                return
            query["cursor"] = found["cursor"]

    def _ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        answer = self._http.request(method, path, **options)
        if answer.is_success:
            return answer
        try:
            problem = answer.json()
        except ValueError:
            problem = {}
        after = answer.headers.get("retry-after")
        kind = _KINDS.get(
            answer.status_code, ServiceError if answer.status_code >= 500 else StreamkitError
        )
        plain = problem if isinstance(problem, dict) else {}
        raise kind(plain, answer.status_code, float(after) if after and after.isdigit() else None)


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
