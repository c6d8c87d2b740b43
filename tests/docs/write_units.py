"""Write units of DynamoDB that the operations of each system take, counted on the emulation.

`python -m tests.docs.write_units` writes the table into the guide; a test compares it.

A unit is 1 KB of an item, or a part of it; a transaction takes twice as many. The larger of the
item before and after counts. An index takes units too: one for an entry that appears, disappears or
changes, two for one that moves.
"""

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import Any, Final, NamedTuple

from keyhouse.clock import Clock, ManualClock
from keyhouse.engine import Engine
from keyhouse.engines.dynamodb import DynamoDBEngine, Settings
from keyhouse.engines.dynamodb.layout import layout_of
from keyhouse.limits import CHANGES_KEPT
from keyhouse.nats.connection import connect
from keyhouse.testing.conformance import Opener
from keyhouse.testing.servers.dynamodb import ACCESS_KEY, REGION, dynamodb_server
from systems.audiobooks.tests.support.service import PASSWORD, LibraryService
from systems.audiobooks.tests.test_audiobooks_listening import Shelf
from systems.history.tests.support.service import EXT, viewing
from systems.history.tests.support.service import serving as serving_history
from systems.playlist.tests.support.service import fill, item, playlist_service
from systems.rosey.tests.support.harness import Harness
from systems.streamkit.tests.support.configs import sent
from systems.streamkit.tests.support.service import serving as serving_streamkit
from tests.docs.pages import DOCS
from tests.support.dynamodb_tables import settings
from tests.support.nats_servers import nats_server

PAGE: Final = DOCS / "guides" / "dynamodb.md"
START, END = "<!-- counted: write units -->\n", "<!-- end -->\n"

Item = dict[str, Any]


class Row(NamedTuple):
    system: str
    operation: str
    requests: int
    items: int
    units: int


class Meter:
    """A proxy of the driver's client that counts what is written."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._tables: dict[str, Any] = {}
        self.requests = self.items = self.units = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def transact_write_items(self, **parameters: Any) -> Any:
        units = [await self._units(*each.popitem(), 2) for each in _copies(parameters)]
        return await self._counted("transact_write_items", parameters, units)

    async def update_item(self, **parameters: Any) -> Any:
        units = [await self._units("Update", parameters, 1)]
        return await self._counted("update_item", parameters, units)

    async def batch_write_item(self, **parameters: Any) -> Any:
        units = [
            await self._units("Delete", {"TableName": table, **request["DeleteRequest"]}, 1)
            for table, requests in parameters["RequestItems"].items()
            for request in requests
        ]
        return await self._counted("batch_write_item", parameters, units)

    async def _counted(self, name: str, parameters: Any, units: list[int]) -> Any:
        answer = await getattr(self._client, name)(**parameters)
        self.requests += 1
        self.items += len(units)
        self.units += sum(units)
        return answer

    async def _units(self, kind: str, operation: Any, factor: int) -> int:
        if kind == "ConditionCheck":
            return factor
        name = operation["TableName"]
        table = await self._table(name)
        keys = {each["AttributeName"] for each in table["KeySchema"]}
        new: Item = operation.get("Item", {})
        key = operation.get("Key") or {each: new[each] for each in keys}
        answer = await self._client.get_item(TableName=name, Key=key, ConsistentRead=True)
        old: Item = answer.get("Item", {})
        if kind == "Update":  # of a head or a hint: small, and in no index
            return factor
        written = factor * max(1, _kilobytes(old), _kilobytes(new))
        indexes = table.get("GlobalSecondaryIndexes", []) + table.get("LocalSecondaryIndexes", [])
        return written + sum(_index_units(index, keys, old, new) for index in indexes)

    async def _table(self, name: str) -> Any:
        if name not in self._tables:
            self._tables[name] = (await self._client.describe_table(TableName=name))["Table"]
        return self._tables[name]


def _copies(parameters: Any) -> list[dict[str, Any]]:
    return [dict(each) for each in parameters["TransactItems"]]


def _index_units(index: Any, keys: set[str], old: Item, new: Item) -> int:
    names = {each["AttributeName"] for each in index["KeySchema"]} | keys
    before, after = (
        {
            name: value
            for name, value in each.items()
            if name in names or index["Projection"]["ProjectionType"] == "ALL"
        }
        if names <= each.keys()
        else {}
        for each in (old, new)
    )
    if before == after:
        return 0
    if all(before.get(name) == after.get(name) for name in names):
        return max(_kilobytes(before), _kilobytes(after))
    return _kilobytes(before) + _kilobytes(after)


def _kilobytes(item: Item) -> int:
    return ceil(sum(len(name) + _size(value) for name, value in item.items()) / 1_024)


def _size(value: Any) -> int:
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "N":
            return len(content) // 2 + 1
        case "L":
            return 3 + sum(1 + _size(each) for each in content)
        case "M":
            return 3 + sum(1 + len(name) + _size(each) for name, each in content.items())
        case "SS":
            return sum(len(each.encode()) for each in content)
        case _:
            return len(content) if isinstance(content, (str, bytes)) else 1


class Counting:
    """Opens metered engines, and notes what each step writes."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._meter: Meter

    def opener(self, layout: str) -> Opener:
        where: Settings = settings(layout=layout_of(layout))

        async def opened(clock: Clock, *, changes_kept: int = CHANGES_KEPT) -> Engine:
            engine = await DynamoDBEngine.open(where, clock=clock, changes_kept=changes_kept)
            self.meter(engine)
            return engine

        return opened

    def meter(self, engine: DynamoDBEngine) -> None:
        self._meter = engine.client.driver = Meter(engine.client.driver)

    @contextmanager
    def step(self, system: str, operation: str) -> Iterator[None]:
        meter = self._meter
        before = meter.requests, meter.items, meter.units
        yield
        counts = meter.requests - before[0], meter.items - before[1], meter.units - before[2]
        self.rows.append(Row(system, operation, *counts))


def history(counting: Counting, folder: Path) -> None:
    with serving_history(counting.opener("history"), folder) as service:
        viewer = service.viewer("profile-1")
        films = [viewing(300 + number, assetId=f"m{number}") for number in range(10)]

        def step(operation: str, ask: Callable[[], object]) -> None:
            with counting.step("history", operation):
                ask()

        step("put: a film", lambda: viewer.put("film", 0, 10))
        step("put: a later position", lambda: viewer.put("film", 60, 20))
        step("put: completed", lambda: viewer.put("film", 120, 100))
        step("put: an episode of a show and a sport", lambda: viewer.put("episode", 0, ext=EXT))
        step("put: a later position of it", lambda: viewer.put("episode", 60, 60, ext=EXT))
        step("events: ten films", lambda: viewer.ask("POST", "/events", json={"events": films}))
        step("delete", lambda: viewer.ask("DELETE", "/assets/episode", status=204))


def streamkit(counting: Counting, folder: Path) -> None:
    with serving_streamkit(counting.opener("streamkit"), folder) as service:
        panel = service.client("c1")

        def step(operation: str, method: str, path: str, body: Any = None) -> None:
            with counting.step("streamkit", operation):
                panel.request(method, path, json=body).raise_for_status()

        notes = [{"op": "create", "config": sent("notes", id=f"b{n}")} for n in range(10)]
        one = f"/configs/notes/{sent('notes')['id']}"
        step("create", "POST", "/configs/notes", sent("notes"))
        step("replace", "PUT", one, sent("notes"))
        step("batch: ten new ones", "POST", "/configs/notes:batch", {"operations": notes})
        step("delete", "DELETE", one)
        for operation in ("record_scene: a new one", "record_scene: again"):
            step(operation, "POST", "/scene-activity/record", {"sceneName": "Gaming Scene"})


def audiobooks(counting: Counting, folder: Path) -> None:
    root = folder / "media"
    root.mkdir()
    with LibraryService(counting.opener("audiobooks"), folder, roots=[root]) as service:

        def step(operation: str, ask: Callable[[], Any]) -> Any:
            with counting.step("audiobooks", operation):
                reply = ask()
            assert reply.is_success, reply.text
            return reply.json()["data"] if reply.content else None

        login = {"username": "admin", "password": PASSWORD}
        guest = service.client()
        step("set_up", lambda: guest.post("/auth/setup", json=login))
        step("login", lambda: guest.post("/auth/login", json=login))
        admin = service.signed_in("admin")
        shelf = Shelf(service, admin)
        user = {"username": "bob", "password": PASSWORD, "roles": ["viewer"]}
        step("create_user", lambda: admin.post("/users", json=user))
        author = step("authors_create", lambda: admin.post("/authors", json={"name": "U. K. L."}))
        new = {"title": "The Dispossessed", "author_id": author["id"], "tags": ["utopia"]}
        made = step("books_create", lambda: admin.post("/books", json=new))
        book = f"/books/{made['id']}"
        step("books_change: its title", lambda: admin.patch(book, json={"title": "Earthsea"}))
        step("books_change: a tag", lambda: admin.patch(book, json={"tags": ["utopia", "moon"]}))
        step("books_delete", lambda: admin.delete(book))
        step("books_restore", lambda: admin.post(f"{book}/restore"))
        step("books_save: the first position", lambda: shelf.save(shelf.phone, 0, 1))
        service.clock.advance(seconds=10)
        step("books_save: a later position", lambda: shelf.save(shelf.phone, 0, 11))
        mark = {"segment_id": shelf.ids[0], "position_seconds": 1}
        marks = f"{shelf.path}/bookmarks"
        step("books_add_bookmark", lambda: shelf.phone.post(marks, json=mark))
        status = {"status": "finished"}
        step("books_set_status", lambda: shelf.phone.patch(f"{shelf.path}/status", json=status))
        step("put_preference", lambda: shelf.phone.put("/preferences/speed", json=1.25))
        created = step("create_playlist", lambda: admin.post("/playlists", json={"name": "P"}))
        books = f"/playlists/{created['id']}/books"
        added = {"book_ids": [shelf.book["id"]]}
        step("playlist_add", lambda: admin.post(books, json=added))
        step("delete_playlist", lambda: admin.delete(f"/playlists/{created['id']}"))
        step("logout", lambda: shelf.desk.post("/auth/logout"))


async def playlist(counting: Counting, folder: Path) -> None:
    fill(folder, [item("v1", "A film"), item("v2", "Another")])
    engine = await counting.opener("playlist")(ManualClock())
    async with playlist_service(folder, engine=engine, clock=engine.clock) as service:
        visitor = service.visitor()

        async def step(operation: str, method: str, path: str, body: Any = None) -> Any:
            with counting.step("playlist", operation):
                reply = await visitor(method, path, body)
            assert reply.is_success, reply.text
            return reply.json() if reply.content else None

        await step("otp_request", "POST", "/auth/otp/request", {"username": "Ada"})
        otp = {"username": "Ada", "otp": service.codes["Ada"]}
        await step("otp_verify", "POST", "/auth/otp/verify", otp)
        films = {"name": "Films", "items": [{"video_id": "v1"}]}
        made = await step("playlists_create", "POST", "/playlists", films)
        one = f"/playlists/{made['playlist_id']}"
        both = films | {"items": [{"video_id": "v1"}, {"video_id": "v2"}]}
        await step("playlists_replace: its items", "PUT", one, both)
        await step("playlists_replace: its name", "PUT", one, both | {"name": "More"})
        await step("playlists_fork", "POST", f"{one}/fork", {"name": "Mine"})
        await step("playlists_delete", "DELETE", one)
        await step("logout", "POST", "/auth/logout")
    await engine.close()


async def rosey(counting: Counting, folder: Path) -> None:
    endpoint = dynamodb_server().endpoint
    url = f"dynamodb://{settings().table}?region={REGION}&endpoint={endpoint}"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        os.environ.setdefault(name, ACCESS_KEY)
    harness = Harness(url, folder, ManualClock(), {})
    async with connect(nats_server().url) as client:
        harness.client = client
        await harness.start()
        assert isinstance(harness.engine, DynamoDBEngine)
        counting.meter(harness.engine)

        async def step(operation: str, subject: str, body: Any) -> None:
            with counting.step("rosey", operation):
                reply = await harness.ask(f"bot.{subject}", body)
            assert "error" not in reply, reply

        ops = [{"op": "set", "key": f"b{number}", "value": 1} for number in range(10)]
        await step("set: the first of a plugin", "set", {"key": "k", "value": 1})
        await step("set: a new key", "set", {"key": "a", "value": 1})
        await step("set: a stored key", "set", {"key": "a", "value": 2})
        await step("set: with a ttl", "set", {"key": "t", "value": 1, "ttl": 60})
        await step("set: with a new ttl", "set", {"key": "t", "value": 1, "ttl": 90})
        await step("touch", "touch", {"key": "t", "ttl": 120})
        await step("incr: a new key", "incr", {"key": "n"})
        await step("incr: a stored key", "incr", {"key": "n"})
        await step("cas", "cas", {"key": "c", "value": 1, "revision": None})
        await step("batch: ten sets", "batch", {"ops": ops})
        await step("delete", "delete", {"key": "a"})
        await harness.stop()


def count() -> list[Row]:
    counting = Counting()
    with tempfile.TemporaryDirectory(prefix="units") as name:
        folders = {each: Path(name) / each for each in ("history", "streamkit", "audiobooks")}
        for each in ("history", "streamkit", "audiobooks", "playlist", "rosey"):
            (Path(name) / each).mkdir()
        asyncio.run(rosey(counting, Path(name) / "rosey"))
        streamkit(counting, folders["streamkit"])
        audiobooks(counting, folders["audiobooks"])
        asyncio.run(playlist(counting, Path(name) / "playlist"))
        history(counting, folders["history"])
    return counting.rows


def table(rows: list[Row]) -> str:
    lines = ["| system | operation | requests | items | write units |", "|---|---|---|---|---|"]
    lines += [f"| {' | '.join(str(each) for each in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def documented() -> str:
    return PAGE.read_text().partition(START)[2].partition(END)[0]


def main() -> None:
    front, start, rest = PAGE.read_text().partition(START)
    end = rest.partition(END)[2]
    PAGE.write_text(front + start + table(count()) + END + end)


if __name__ == "__main__":
    main()
