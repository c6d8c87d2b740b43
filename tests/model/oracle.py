"""The expected rows and results of the store, in plain dictionaries, written from the design.

It uses no template, segment or derived row: the functions below build each key and row from the
records. Only the first record of a shelf is not a function of the current records, so it is stored.
"""

import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from keyhouse.errors import (
    CounterError,
    DocumentError,
    KeyFieldError,
    KeyhouseError,
    RecordError,
    RevisionError,
    UniqueError,
    UsageError,
)

Keys = tuple[Any, ...]
Json = Any
BOUND: Final = 2**63 - 1
MORTAL: Final = ("fixed", "sliding", "write", "field")
CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


class Refused(Exception):
    """The operation must be rejected with one of these errors."""

    def __init__(self, *kinds: type[KeyhouseError]) -> None:
        super().__init__(*kinds)
        self.kinds = kinds


class Stored(NamedTuple):
    value: dict[str, Json]
    expires: int | None
    revision: int | None
    """None: written by a commit whose revision is not known yet."""


class Listed(NamedTuple):
    """One row of an index or record: its sort position, its fields, and its record."""

    key: str
    fields: Keys
    record: str
    owner: Keys
    value: Json
    expires: int | None


def written(text: str) -> str:
    """Return text as it is escaped before a colon."""
    return text.replace("%", "%25").replace(":", "%3A")


def folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def time_text(now: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=now // 1_000)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{now % 1_000:03d}Z"


def ulid_time(ulid: str) -> int:
    time = 0
    for character in ulid[:10]:
        time = time * 32 + CROCKFORD.index(character)
    return time


def place_text(place: float | None) -> str:
    return "null" if place is None else f"{round(place * 100):06d}"


def listing(name: str, keys: Keys, stored: Stored) -> Iterator[tuple[str, Listed]]:
    """Yield a record's own row, then its row of each index, with the index's name."""
    value, expires = stored.value, stored.expires

    def row(key: str, fields: Keys, value: Json = 1) -> Listed:
        return Listed(key, fields, name, keys, value, expires)

    match name:
        case "item":
            id, shelf, place = value["id"], value["shelf"], value["place"]
            yield "item", row(f"i:{id}", keys, value)
            if shelf is not None:
                yield (
                    "shelf",
                    row(f"x:shelf:{written(shelf)}:{place_text(place)}:{id}", (shelf, place, id)),
                )
            for tag in {folded(tag) for tag in value["tags"]}:
                yield "tag", row(f"x:tag:{written(tag)}:{id}", (tag, id))
            if value["listed"]:
                yield "rank", row(f"x:rank:{value['rank']:03d}:{id}", (value["rank"], id), shelf)
            if value["name"] is not None:
                yield "name", row(f"x:name:{folded(value['name'])}", (folded(value["name"]),), id)
        case "task":
            id, state, project = value["id"], value["state"], value["project"]
            yield "task", row(f"t:{state}|{id}", keys, value)
            if project is not None:
                yield (
                    "project",
                    row(f"x:project:{written(project)}:{state}:{id}", (project, state, id)),
                )
        case "fixed" | "sliding" | "write" | "field":
            id, owner = value["id"], value["owner"]
            yield name, row(f"{name}:{id}", keys, value)
            yield f"{name}-owner", row(f"x:{name}:{written(owner)}:{id}", (owner, id))
            for tag in set(value["tags"]):
                yield f"{name}-tag", row(f"x:{name}-tag:{written(tag)}:{id}", (tag, id), owner)
            if value["code"] is not None:
                yield f"{name}-code", row(f"x:{name}-code:{value['code']}", (value["code"],), id)
        case "last":
            yield name, row(f"last:{written(keys[0])}:{keys[1]}", keys, value)
        case "numbered":
            yield name, row(f"numbered:{written(keys[0])}:{keys[1]:06d}", keys, value)
        case "now" | "later":
            yield name, row(f"{name}:{written(keys[0])}:{keys[1]}", keys, value)
        case _:
            yield name, row(f"{name}:{keys[0]}", keys, value)


class Home:
    """Everything stored in one home. A transaction works on a copy, which a commit puts in its
    place.
    """

    def __init__(self) -> None:
        self.records: dict[str, dict[Keys, Stored]] = {}
        self.counters: dict[tuple[str, str], int] = {}
        self.holders: dict[str, str] = {}
        self.perishable: dict[str, int | None] = {}
        """Stored rows of records that expire, live or not: the sweep deletes the expired ones."""
        self.doubtful: set[str] = set()
        """Rows that one transaction put and deleted: an expired row there may still be stored."""
        self.touched: set[tuple[str, Keys]] = set()
        self.rewritten: set[tuple[str, str]] = set()
        """Counters that this transaction put or deleted: an add to them is no longer blind."""

    def copy(self) -> "Home":
        home = Home()
        home.records = {name: dict(stored) for name, stored in self.records.items()}
        home.counters = dict(self.counters)
        home.holders = dict(self.holders)
        home.perishable = dict(self.perishable)
        home.doubtful = set(self.doubtful)
        return home

    def live(self, name: str, now: int) -> dict[Keys, Stored]:
        kept = self.records.get(name, {})
        return {keys: s for keys, s in kept.items() if s.expires is None or s.expires > now}

    def find(self, name: str, keys: Keys, now: int) -> Stored | None:
        stored = self.records.get(name, {}).get(keys)
        return (
            None
            if stored is None or (stored.expires is not None and stored.expires <= now)
            else stored
        )

    # Writing

    def put(
        self,
        name: str,
        value: dict[str, Json],
        now: int,
        *,
        ttl: int | None = None,
        expect: str = "",
        keys: Keys = (),
    ) -> Stored:
        keys = keys or ((value["state"], value["id"]) if name == "task" else (value["id"],))
        before = self.find(name, keys, now)
        errors: list[type[KeyhouseError]] = []
        if expect == "stale" or (expect == "absent" and before is not None):
            errors.append(RevisionError)
        expires = self._expires(name, value, before, ttl, now, errors)
        if name == "item":
            created = before.value["created"] if before is not None else time_text(now)
            label = f"{value['name'] or value['id']} #{value['rank']}"
            value = value | {"label": label, "created": created, "updated": time_text(now), "v": 3}
        errors += self._refusals(name, keys, value, now)
        if errors:
            raise Refused(*errors)
        self._move(name, keys, before, Stored(value, expires, None), now)
        return self.records[name][keys]

    def delete(self, name: str, keys: Keys, now: int, *, expect: str = "") -> bool:
        before = self.find(name, keys, now)
        if expect == "stale" or (expect == "absent" and before is not None):
            raise Refused(RevisionError)
        if before is None:
            return False
        self._move(name, keys, before, None, now)
        return True

    def add(self, counter: str, name: str, by: int, *, blind: bool = True) -> None:
        """Add without a read: the commit rejects an invalid sum."""
        total = self.counters.get((counter, name), 0) + by
        if abs(by) > BOUND:
            raise Refused(RecordError)
        if abs(total) > BOUND and (not blind or (counter, name) in self.rewritten):
            raise Refused(CounterError)
        self.counters[counter, name] = total

    def counted(self, counter: str, name: str) -> int:
        if abs(total := self.counters.get((counter, name), 0)) > BOUND:
            raise Refused(CounterError)
        return total

    def set_counter(self, counter: str, name: str, value: int | None) -> None:
        self.counted(counter, name)
        self.counters.pop((counter, name), None)
        if value is not None:
            self.counters[counter, name] = value
        self.rewritten.add((counter, name))

    @property
    def overflows(self) -> bool:
        return any(abs(total) > BOUND for total in self.counters.values())

    def _move(
        self, name: str, keys: Keys, before: Stored | None, after: Stored | None, now: int
    ) -> None:
        records = self.records.setdefault(name, {})
        records.pop(keys, None)
        if after is not None:
            records[keys] = after
        if name == "item":
            self._pass_on(
                keys[0], before and before.value["shelf"], after and after.value["shelf"], now
            )
        if name in MORTAL:
            for _, row in listing(name, keys, before) if before is not None else ():
                self.perishable.pop(row.key, None)
                if (name, keys) in self.touched:
                    self.doubtful.add(row.key)
            for _, row in listing(name, keys, after) if after is not None else ():
                self.perishable[row.key] = row.expires
                self.doubtful.discard(row.key)
        self.touched.add((name, keys))

    def _pass_on(self, id: str, left: str | None, entered: str | None, now: int) -> None:
        """Keep a shelf's first record until it leaves; then choose the first in order."""
        if left == entered:
            return
        if left is not None and self.holders[left] == id:
            items = self.live("item", now).values()
            others = [
                (place_text(i.value["place"]), i.value["id"])
                for i in items
                if i.value["shelf"] == left
            ]
            del self.holders[left]
            if others:
                self.holders[left] = min(others)[1]
        if entered is not None:
            self.holders.setdefault(entered, id)

    def _expires(
        self,
        name: str,
        value: dict[str, Json],
        before: Stored | None,
        ttl: int | None,
        now: int,
        errors: list[type[KeyhouseError]],
    ) -> int | None:
        if ttl is not None:
            if name not in MORTAL or name == "field":
                errors.append(UsageError)
            elif ttl < 1:
                errors.append(RecordError)
            return now + ttl * 1_000
        match name:
            case "fixed":
                return before.expires if before is not None else now + 60_000
            case "sliding":
                return now + 30_000
            case "field" if value["until"] is not None:
                try:
                    until = datetime.fromisoformat(value["until"])
                except ValueError:
                    errors.append(DocumentError)
                    return None
                expires = (until - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
                if expires <= now:
                    errors.append(RecordError)
                return expires
        return None

    def _refusals(
        self, name: str, keys: Keys, value: dict[str, Json], now: int
    ) -> Iterator[type[KeyhouseError]]:
        tags, others = value.get("tags", ()), self.live(name, now).items()
        match name:
            case "item":
                placed = value["shelf"] is not None and value["place"] is not None
                if not 0 <= value["rank"] <= 999 or (
                    placed and round(value["place"], 2) != value["place"]
                ):
                    yield KeyFieldError
                if any(not folded(tag) for tag in tags) or (
                    value["name"] is not None and not folded(value["name"])
                ):
                    yield KeyFieldError
                taken = [
                    folded(o.value["name"])
                    for k, o in others
                    if k != keys and o.value["name"] is not None
                ]
                if value["name"] is not None and folded(value["name"]) in taken:
                    yield UniqueError
            case "task" if value["state"] not in ("open", "done"):
                yield KeyFieldError
            case "fixed" | "sliding" | "write" | "field":
                if value["code"] == "" or "" in tags:
                    yield KeyFieldError
                if value["code"] is not None and value["code"] in [
                    o.value["code"] for k, o in others if k != keys
                ]:
                    yield UniqueError

    def sweep(self, now: int) -> tuple[int, int]:
        """Remove expired rows, and return the minimum and maximum of their number."""
        gone = [
            key
            for key, expires in self.perishable.items()
            if expires is not None and expires <= now
        ]
        doubtful = len(self.doubtful)
        self.doubtful = set()
        for key in gone:
            del self.perishable[key]
        for name in MORTAL:
            self.records[name] = self.live(name, now)
        return len(gone), len(gone) + doubtful

    # Logs

    def append(self, log: str, user: str, item: str, now: int, *, at: str | None) -> int | None:
        """Append at the generated or given position. A log with a sequence uses its own number."""
        if log == "numbered":
            number = self.counters.get(("number", user), 0)
            self.counters["number", user] = number + 1
            self._move(log, (user, number), None, Stored({"item": item}, None, None), now)
            return number
        assert at is not None
        state = self.find(f"{log}-state", (user,), now)
        if state is not None and at <= state.value["through"]:
            raise Refused(RecordError)
        if self.find(log, (user, at), now) is not None:
            raise Refused(RevisionError)
        self._move(log, (user, at), None, Stored({"item": item}, None, None), now)
        self._fold(log, user, at, item, now)
        return None

    def prune(self, log: str, users: list[str], before: int, keep: int, now: int) -> int:
        gone = 0
        for user in users:
            events = sorted(at for (of, at) in self.live(log, now) if of == user)
            for at in events[: max(0, len(events) - keep)]:
                if ulid_time(at) < before:
                    self._move(log, (user, at), None, None, now)
                    gone += 1
        return gone

    def _fold(self, log: str, user: str, at: str, item: str, now: int) -> None:
        state = self.find(f"{log}-state", (user,), now)
        before = {"count": 0, "ranks": 0} if state is None else state.value
        found = self.find("item", (item,), now)
        rank = 0 if found is None else found.value["rank"]
        after = {"through": at, "count": before["count"] + 1, "ranks": before["ranks"] + rank}
        last = {"user": log, "item": item, "count": after["count"]}
        self._move("last", (item, log), None, Stored(last, None, None), now)
        self.counters["total", item] = self.counters.get(("total", item), 0) + 1
        self._move(f"{log}-state", (user,), state, Stored(after, None, None), now)

    # Reading

    def listed(self, by: str, now: int) -> list[Listed]:
        """Return the rows of an index, or of the records of that name, in order."""
        if by == "first":
            return [
                Listed(f"x:first:{shelf}", (shelf,), "item", (id,), id, None)
                for shelf, id in sorted(self.holders.items(), key=lambda held: f"x:first:{held[0]}")
            ]
        of = {
            "shelf": "item",
            "tag": "item",
            "rank": "item",
            "name": "item",
            "project": "task",
        }.get(by)
        name = of or (by.partition("-")[0] if by.partition("-")[0] in MORTAL else by)
        rows = [
            r
            for keys, s in self.live(name, now).items()
            for is_by, r in listing(name, keys, s)
            if is_by == by
        ]
        return sorted(rows, key=lambda row: row.key)

    def members(self, now: int) -> dict[str, Json]:
        """Return every summary of the current records, with sorted lists: their order is not
        promised.
        """
        rows: dict[str, Json] = {}
        for stored in self.live("item", now).values():
            item = stored.value
            entry = {"name": item["name"], "tags": item["tags"]}
            rows.setdefault(f"m:rank:{item['rank']:03d}", {"items": {}})["items"][item["id"]] = (
                entry
            )
            if item["shelf"] is not None:
                rows.setdefault(f"m:shelf:{item['shelf']}", {"ids": [], "v": 1})["ids"].append(
                    item["id"]
                )
        for stored in self.live("last", now).values():
            last = stored.value
            rows.setdefault(f"m:played:{last['item']}", {"users": {}})["users"][last["user"]] = (
                last["count"]
            )
        projects = {(s.value["project"], id) for (_, id), s in self.live("task", now).items()}
        for project, id in projects:
            if project is not None:
                rows.setdefault(f"m:project:{project}", {"tasks": []})["tasks"].append(id)
        return {key: ordered(row) for key, row in rows.items()}

    def counts(self, now: int) -> dict[str, int]:
        rows: dict[str, int] = {}
        counted = [
            f"n:shelf:{s.value['shelf']}"
            for s in self.live("item", now).values()
            if s.value["shelf"]
        ]
        for stored in self.live("item", now).values():
            if stored.value["listed"]:
                counted += [f"n:tag:{tag}" for tag in {folded(tag) for tag in stored.value["tags"]}]
        counted += [
            f"n:project:{s.value['project']}"
            for s in self.live("task", now).values()
            if s.value["project"]
        ]
        for key in counted:
            rows[key] = rows.get(key, 0) + 1
        return rows

    def rows(self, now: int) -> dict[str, tuple[Json, int | None]]:
        """Return every expected row except counters of 0, which may exist or not."""
        rows: dict[str, tuple[Json, int | None]] = {}
        for name in self.records:
            for keys, stored in self.live(name, now).items():
                rows.update(
                    {row.key: (row.value, row.expires) for _, row in listing(name, keys, stored)}
                )
        rows.update({f"x:first:{shelf}": (id, None) for shelf, id in self.holders.items()})
        rows.update(
            {key: (row, None) for key, row in (self.members(now) | self.counts(now)).items()}
        )
        short = {"hits": "c"}
        for (counter, name), total in self.counters.items():
            if total:
                rows[f"{short.get(counter, counter)}:{name}"] = (total, None)
        return rows


def ordered(row: Json) -> Json:
    """Return a summary with sorted lists."""
    return {name: sorted(part) if isinstance(part, list) else part for name, part in row.items()}
