"""A client of Streamkit's HTTP service, typed, for Python programs. It needs `httpx`, of the extra
`client`.

    with Streamkit("https://api.example/streamkit", token="…") as panel:
        note = panel.create(Note(id="ideas", title="Stream Ideas", content=""))
        note.value.content = "1. Play new game"
        panel.replace(note.value, if_match=note.etag)

A rejected request raises the KeyhouseError of the service, and a failed connection httpx's own
errors. Nothing is retried.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

import msgspec

from keyhouse.schema import Record
from keyhouse.service.http_client import HttpClient
from keyhouse_streamkit.configs import Operation
from keyhouse_streamkit.schema import (
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

__all__ = [
    "FetchedConfig",
    "Streamkit",
]

Config = TextCycler | Swap | Layout | Note
C = TypeVar("C", TextCycler, Swap, Layout, Note)

RECORDS: Final[dict[type[Any], Record[Any]]] = {
    TextCycler: TEXT_CYCLER,
    Swap: SWAP,
    Layout: LAYOUT,
    Note: NOTE,
}


class FetchedConfig(msgspec.Struct, Generic[C], frozen=True):
    """A config and its ETag."""

    value: C
    etag: str


class Streamkit(HttpClient):
    """One customer's view of a service: the customer is the one that the token names."""

    def create(self, config: C) -> FetchedConfig[C]:
        """Create a config; with an empty `id`, the service generates one. ConflictError if the id
        is taken."""
        record = _record(type(config))
        response = self.request("POST", f"/configs/{record.name}", json=_plain(config))
        return FetchedConfig(
            record.json.accepted(response.json()["config"]), response.headers["etag"]
        )

    def get(self, kind: type[C], id: str) -> FetchedConfig[C]:
        """Return a config; NotFoundError if it does not exist."""
        response = self.request("GET", _path(kind, id))
        return FetchedConfig(_record(kind).json.accepted(response.json()), response.headers["etag"])

    def replace(self, config: C, *, if_match: str | None = None) -> FetchedConfig[C]:
        """Replace a config. `if_match`: only if its ETag is still this one, else RevisionError."""
        headers = {} if if_match is None else {"If-Match": if_match}
        response = self.request(
            "PUT", _path(type(config), config.id), json=_plain(config), headers=headers
        )
        return FetchedConfig(
            _record(type(config)).json.accepted(response.json()["config"]), response.headers["etag"]
        )

    def delete(self, kind: type[C], id: str, *, if_match: str | None = None) -> bool:
        """Delete a config and return whether it existed."""
        headers = {} if if_match is None else {"If-Match": if_match}
        return bool(self.request("DELETE", _path(kind, id), headers=headers).json()["deleted"])

    def configs(self, kind: type[C], *, since: str | None = None, page: int = 1_000) -> Iterator[C]:
        """Iterate over the configs of a type by id; `since`: those with this `updatedAt` or a later
        one."""
        params = {"limit": page} if since is None else {"limit": page, "since": since}
        record = _record(kind)
        for plain in self.items_of(f"/configs/{record.name}", "configs", params):
            yield record.json.accepted(plain)

    def ids(self, kind: type[C], *, page: int = 1_000) -> Iterator[str]:
        """Iterate over the ids of all configs of a type: any other was deleted."""
        params = {"limit": page, "fields": "ids"}
        for plain in self.items_of(f"/configs/{_record(kind).name}", "configs", params):
            yield plain["id"]

    def batch(self, kind: type[C], operations: Sequence[Operation]) -> list[dict[str, Any]]:
        """Apply all operations, or none, and return their results: see `Create`, `Update` and
        `Delete`."""
        body = {"operations": msgspec.to_builtins(operations)}
        results: list[dict[str, Any]] = self.request(
            "POST", f"/configs/{_record(kind).name}:batch", json=body
        ).json()["results"]
        return results

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
