"""The steps of the demo: the tutorial's functions, then failures that the store detects."""

import asyncio
import inspect
import sys
from pathlib import Path

from examples.tour.presenter import Presenter
from keyhouse import ManualClock, Store, open_engine, sweep, verify
from keyhouse.demo import clips
from keyhouse.demo.clips import (
    BOARD,
    BY_TAG,
    CLIP,
    NEXT_BOARD,
    ON_SCREEN,
    Clip,
    fill,
    follow,
    grow,
    look,
)
from keyhouse.engine import Batch
from keyhouse.errors import UniqueError

_SPACE = "channel-7"


async def tell(path: Path, *, kept: bool) -> None:
    clock = ManualClock()
    engine = await open_engine(f"sqlite:{path}", clock=clock)
    store = Store(BOARD, engine, _SPACE)
    presenter = Presenter(engine, _SPACE)

    async def put_duplicate() -> None:
        try:
            await store.put(CLIP, Clip(id="copy", title="WHAT A  GOAL!", second=755, viewer="Cy"))
        except UniqueError as error:
            print(error)

    async def put_on_screen() -> None:
        await store.put(ON_SCREEN, "goal")

    async def wait() -> None:
        clock.advance(seconds=29)
        print("after 29 seconds:", await store.get(ON_SCREEN))
        clock.advance(seconds=1)
        print("after 30 seconds:", await store.get(ON_SCREEN))
        print("deleted by the sweep:", await sweep(engine))

    async def break_by_hand() -> None:
        await engine.commit("channel-7", Batch(deletes=("idx:clip:tag:goal:goal",)))
        print("goals:", [entry.key async for entry in store.scan(CLIP, by=BY_TAG, tag="goal")])

    async def repair() -> None:
        async for finding in verify(store, repair=True):
            print(f"{finding.kind}: {finding.key} ({finding.detail})")
        print("goals:", [entry.key async for entry in store.scan(CLIP, by=BY_TAG, tag="goal")])

    try:
        presenter.title(
            "Declare a keyspace",
            "A record, three derived rows, and a value that expires. Declaring the schema proves"
            " that no two of"
            " these patterns can build the same key.",
        )
        presenter.code("\n\n".join(_blocks()[1:3]))
        await presenter.step(
            "Store clips",
            "Each call writes the record and all its derived rows in one commit, which is on disk"
            " when it returns.",
            fill,
            store,
        )
        await presenter.step(
            "Query clips",
            "By an index in order, by one of many tags, by a unique title. Names match without"
            " case or width.",
            look,
            store,
        )
        await presenter.step(
            "Change a clip, and watch the change",
            "The clip moves to another second: the same commit deletes its old index row and puts"
            " a new one. The watch"
            " starts at the revision of the page that was read, so nothing is missed.",
            follow,
            store,
        )
        await presenter.step(
            "A duplicate title is rejected",
            "Another clip has the unique row, so nothing is written.",
            put_duplicate,
        )
        await presenter.step(
            "A value that expires",
            "The clip in the overlay: the record is declared to expire after 30 seconds.",
            put_on_screen,
        )
        await presenter.step(
            "Time passes",
            "The clock is an argument, so the demo can move it. An expired row is invisible at"
            " once; the sweep deletes it.",
            wait,
        )
        presenter.title(
            "Explain a key",
            "In another process, while this one has the file open: its meaning, its stored value,"
            " and related keys.",
        )
        await _explain(presenter, path, "idx:clip:tag:goal:goal")
        await presenter.step(
            "Delete an index row by hand",
            "Directly in the engine, bypassing the store. The clip exists, but a search by its"
            " tag does not find it.",
            break_by_hand,
        )
        await presenter.step(
            "verify finds and repairs it",
            "Every row is compared with its record, while others may write.",
            repair,
        )
        await presenter.step(
            "Migrate the keyspace",
            "A new index, and a numbered migration that writes its rows for existing clips. If it"
            " is killed, it"
            " resumes where it stopped.",
            grow,
            Store(NEXT_BOARD, engine, _SPACE),
            given=next(block for block in _blocks() if "NEXT_BOARD = " in block),
        )
    finally:
        await engine.close()
    presenter.say(_ending(path, kept))


def _blocks() -> list[str]:
    """Return the blocks of the tutorial's program."""
    return inspect.getsource(clips).split("\n\n\n")


async def _explain(presenter: Presenter, path: Path, key: str) -> None:
    arguments = [
        "explain",
        "keyhouse.demo.clips:BOARD",
        key,
        "--store",
        f"sqlite:{path}",
        "--space",
        _SPACE,
    ]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "keyhouse.cli", *arguments, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    presenter.code(
        "$ keyhouse " + " ".join([*arguments[:4], f"sqlite:{path.name}", *arguments[5:]])
    )
    presenter.output(output.decode())


def _ending(path: Path, kept: bool) -> str:
    left = (
        f"The file is {path}: open it with any SQLite shell."
        if kept
        else "The file has been deleted; pass a folder to keep it."
    )
    return f"{left}\nThe tutorial, docs/tutorial.md, builds this keyspace line by line."
