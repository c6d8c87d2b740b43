"""`python -m tools.screens`, a part of `make docs`: write pictures of the main commands to
docs/screens.

Each is the output of the real program in a pseudo-terminal, on a small store at a fixed time, so
that a picture changes only when the output does. It needs an operating system with
pseudo-terminals.
"""

import asyncio
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Final

from keyhouse import ManualClock, Store, open_engine
from keyhouse.demo import BOARD, CLIP, Clip
from keyhouse.engine import Batch

SCREENS: Final = {
    "get": ("get", "clip:goal"),
    "put": (
        "put",
        "clip:replay",
        '{"title": "Seen again", "second": 760, "viewer": "Bo", "tags": ["replay"]}',
    ),
    "list": ("list",),
    "scan": ("scan", "idx:clip:tag:replay:", "--resolve"),
    "watch": ("watch", "--since", "0", "--count", "6"),
    "stats": ("stats",),
    "explain": ("explain", "clip:goal"),
    "verify": ("verify",),
}
"""The commands, in the order in which they run. Their store lacks an index row."""

COLUMNS: Final = 100

_SYSTEM: Final = "keyhouse.demo.clips:BOARD"
_BROKEN: Final = "idx:clip:tag:goal:goal"
_NOW: Final = 1_768_737_600_000
_FONTS: Final = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
"""Rich links to fonts on a CDN; any monospaced font will do."""
_PROGRESS: Final = re.compile(r"\x1b\[\?25l.*?\x1b\[\?25h(\r|\x1b\[1A|\x1b\[2K)*", re.DOTALL)
"""Rich's progress line: it hides the cursor, and in the end erases itself."""


async def fill(folder: Path) -> None:
    engine = await open_engine(f"sqlite:{folder / 'clips.db'}", clock=ManualClock(_NOW))
    store = Store(BOARD, engine, "channel-7")
    await store.put(
        CLIP,
        Clip(id="goal", title="What a goal!", second=754, viewer="Ada", tags=["Goal", "replay"]),
    )
    await store.put(
        CLIP, Clip(id="kick-off", title="Kick-off", second=12, viewer="Bo", tags=["replay"])
    )
    await engine.commit("channel-7", Batch(deletes=(_BROKEN,)))
    await engine.close()


def terminal_output(folder: Path, *arguments: str) -> str:
    """Return the output of the program in a terminal."""
    import fcntl
    import pty
    import struct
    import termios

    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        settings = {
            "TERM": "xterm-256color",
            "KEYHOUSE_STORE": "sqlite:clips.db",
            "KEYHOUSE_SPACE": "channel-7",
        }
        environment = {
            name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")
        }
        os.execve(
            sys.executable,
            [sys.executable, "-m", "keyhouse.cli", *arguments],
            environment | settings,
        )
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    sent = b""
    try:
        while piece := os.read(terminal, 65_536):
            sent += piece
    except OSError:  # on Linux, the end of the terminal
        pass
    os.waitpid(process, 0)
    os.close(terminal)
    return _PROGRESS.sub("", sent.decode().replace("\r\n", "\n"))


def picture(name: str, command: str, sent: str) -> str:
    """Return an SVG of the command line and its output."""
    import io

    from rich.console import Console
    from rich.text import Text

    console = Console(
        record=True,
        width=COLUMNS,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
    )
    console.print(Text(f"$ {command}", "bold"))
    console.print(Text.from_ansi(sent.rstrip()), soft_wrap=True)
    return _FONTS.sub(
        "", console.export_svg(title=f"keyhouse {name}", unique_id=f"keyhouse-{name}")
    )


def main() -> None:
    docs = Path("docs/screens")
    docs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(fill(Path(folder)))
        for name, (command, *rest) in SCREENS.items():
            typed = " ".join(
                [
                    "keyhouse",
                    command,
                    "$BOARD",
                    *(f"'{each}'" if " " in each else each for each in rest),
                ]
            )
            svg = picture(name, typed, terminal_output(Path(folder), command, _SYSTEM, *rest))
            path = docs / f"{name}.svg"
            if not path.exists() or path.read_text() != svg:
                path.write_text(svg)
                print(f"Wrote {path}")


if __name__ == "__main__":
    main()
