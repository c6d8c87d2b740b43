"""A small library for tests of the search, and a naive search as its oracle."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

import msgspec

from keyhouse.engine import Engine
from keyhouse.engines.memory import MemoryEngine
from keyhouse.schema import Record, Schema, Space
from keyhouse.search import SearchIndex, SearchSchema, SearchSource, words
from keyhouse.store import Store


class Volume(msgspec.Struct, kw_only=True):
    id: str
    title: str
    tags: list[str] = []
    about: str = ""
    hidden: bool = False


class Writer(msgspec.Struct, kw_only=True):
    id: str
    name: str


VOLUME = Record(Volume, "volume:{id}")
WRITER = Record(Writer, "writer:{id}")
NOTE = Record(Writer, "note:{id}", name="note")
SCHEMA = Schema("library", VOLUME, WRITER, NOTE, space=Space("one library"))

SEARCH = SearchSchema(
    "library",
    SearchSource(
        record=VOLUME,
        texts=lambda volume: (
            None
            if volume.hidden
            else {"title": volume.title, "tags": volume.tags, "about": volume.about}
        ),
        filters=lambda volume: {"tag": volume.tags},
        sort=lambda volume: volume.title,
    ),
    SearchSource(record=WRITER, texts=lambda writer: {"title": writer.name}),
    fields={"title": 10.0, "tags": 3.0, "about": 1.0},
)


def store_on(engine: Engine, space: str = "main") -> Store:
    return Store(SCHEMA, engine, space)


def index_on(engine: Engine, folder: Path, space: str = "main") -> SearchIndex:
    return SearchIndex(SEARCH, folder, store_on(engine, space))


async def found(index: SearchIndex, query: str, **named: object) -> list[str]:
    """Return the ids of all hits, sorted. A busy machine has time to build and to follow."""
    named = {"timeout_seconds": 30, **named}
    page = await index.search(query, limit=1_000, **named)  # type: ignore[arg-type]
    return sorted(str(hit.fields["id"]) for hit in page.hits)


def naive(volumes: Iterable[Volume], query: str, *, prefix: bool = True) -> list[str]:
    """Return the ids of the volumes that have all words of the query."""
    terms = [words(term) for term in query.split()]
    terms = [term for term in terms if term]
    return sorted(volume.id for volume in volumes if terms and _has_all(volume, terms, prefix))


def _has_all(volume: Volume, terms: list[list[str]], prefix: bool) -> bool:
    texts = [words(text) for text in (volume.title, *volume.tags, volume.about)]
    return all(
        any(_has(text, term, prefix and number == len(terms) - 1) for text in texts)
        for number, term in enumerate(terms)
    )


def _has(text: list[str], term: list[str], prefix: bool) -> bool:
    for start in range(len(text) - len(term) + 1):
        part = text[start : start + len(term)]
        if part == term:
            return True
        if prefix and part[:-1] == term[:-1] and part[-1].startswith(term[-1]):
            return True
    return False


Scenario = Callable[[Engine, Path], Coroutine[Any, Any, None]]


def run(scenario: Scenario, folder: Path, engine: Engine | None = None) -> None:
    """Run a scenario on an engine, by default in memory."""

    async def limited() -> None:
        async with asyncio.timeout(60):
            await scenario(engine or MemoryEngine(), folder)

    asyncio.run(limited())


def volume(id: str, title: str, *tags: str, **named: Any) -> Volume:
    return Volume(id=id, title=title, tags=list(tags), **named)


def only_file(folder: Path) -> Path:
    [path] = folder.glob("*.db")
    return path
