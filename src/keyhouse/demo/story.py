"""What the demo tells, step by step: the tutorial's own functions first, then what goes wrong elsewhere, and not here."""

import asyncio
import inspect
import sys
from pathlib import Path

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
from keyhouse.demo.presenter import Presenter
from keyhouse.engine import Batch
from keyhouse.errors import UniqueError

_SPACE = "channel-7"


async def tell(path: Path, *, kept: bool) -> None:
    clock = ManualClock()
    engine = await open_engine(f"sqlite:{path}", clock=clock)
    store = Store(BOARD, engine, _SPACE)
    presenter = Presenter(engine, _SPACE)

    async def refuse() -> None:
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
        print("taken off the disk:", await sweep(engine))

    async def break_by_hand() -> None:
        await engine.commit("channel-7", Batch(deletes=("idx:clip:tag:goal:goal",)))
        print("goals:", [entry.key async for entry in store.scan(CLIP, by=BY_TAG, tag="goal")])

    async def mend() -> None:
        async for finding in verify(store, repair=True):
            print(f"{finding.kind}: {finding.key} ({finding.detail})")
        print("goals:", [entry.key async for entry in store.scan(CLIP, by=BY_TAG, tag="goal")])

    try:
        presenter.title(
            "A keyspace is declared",
            "A record, three rows derived from it, and a value that expires. Declaring the schema proves that no two of"
            " these patterns can build the same key.",
        )
        presenter.code("\n\n".join(_blocks()[1:3]))
        await presenter.step(
            "Clips are stored",
            "Each call writes the record and every row derived from it in one commit, which is on disk when it returns.",
            fill,
            store,
        )
        await presenter.step(
            "They are found again",
            "By an index in order, by one of many tags, by a unique title. Names match without case or width.",
            look,
            store,
        )
        await presenter.step(
            "An index follows a change, and a watch sees it",
            "The clip moves to another second: its old index row goes, the new one comes, in the same commit. The watch"
            " starts at the revision of the page that was read, so nothing falls in between.",
            follow,
            store,
        )
        await presenter.step(
            "A taken title is refused", "The unique row says no, and nothing is written.", refuse
        )
        await presenter.step(
            "A value that expires",
            "What the overlay shows now: the record is declared to live for 30 seconds.",
            put_on_screen,
        )
        await presenter.step(
            "Time passes",
            "The clock is handed in, so the demo can move it. Expired is invisible at once; the sweep only tidies up.",
            wait,
        )
        presenter.title(
            "Any key can be explained",
            "By another process, while this one has the file open: what it is, what is stored there, what belongs with it.",
        )
        await _explain(presenter, path, "idx:clip:tag:goal:goal")
        await presenter.step(
            "Somebody breaks an index by hand",
            "Past the store, straight in the engine. The clip is there, and no search by its tag finds it.",
            break_by_hand,
        )
        await presenter.step(
            "verify finds it, and mends it",
            "Every row is compared with the record it comes from, while others may go on writing.",
            mend,
        )
        await presenter.step(
            "The keyspace grows",
            "A new index, and a numbered migration that writes it for the clips that were there before. Killed half way, it"
            " would go on where it stopped.",
            grow,
            Store(NEXT_BOARD, engine, _SPACE),
            given=next(block for block in _blocks() if "NEXT_BOARD = " in block),
        )
    finally:
        await engine.close()
    presenter.say(_ending(path, kept))


def _blocks() -> list[str]:
    """The tutorial's program, as the tutorial divides it."""
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
    shown, _ = await process.communicate()
    presenter.code(
        "$ keyhouse " + " ".join([*arguments[:4], f"sqlite:{path.name}", *arguments[5:]])
    )
    presenter.output(shown.decode())


def _ending(path: Path, kept: bool) -> str:
    left = (
        f"The file is {path}: open it with any SQLite shell."
        if kept
        else "The file is gone again; name a folder to keep it."
    )
    return f"{left}\nThe tutorial, docs/tutorial.md, builds this keyspace line by line."
