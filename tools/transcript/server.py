"""`keyhouse serve` with all systems and a schema, of any version, in a separate folder."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

__all__ = ["SECRET", "Server", "serving"]

ROOT: Final = Path(__file__).parent.parent.parent
SECRET: Final = "a secret of the transcript, which no service has"
SCHEMA: Final = "tools.transcript.kinds:SCHEMA"
SYSTEMS: Final = ("rosey", "streamkit", "audiobooks", "playlist", "history")
START_SECONDS: Final = 120
RATES: Final = ("HISTORY", "STREAMKIT", "ROSEY", "KINDS", "AUDIOBOOKS", "PLAYLIST")


class Server:
    """`log` returns what the server has written; `command` runs `keyhouse` beside it."""

    def __init__(self, folder: Path, source: Path, output: Path) -> None:
        self.folder = folder
        self.books = folder / "books"
        self._output = output
        systems = sorted(map(str, source.parent.glob("systems/*/src")))
        path = [str(source), *systems, str(ROOT)]
        self._env = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
        for name in ("HISTORY", "STREAMKIT", "STUDIO", "KINDS"):
            self._env[f"KEYHOUSE_{name}_JWT_SECRET"] = SECRET
        for name in RATES:
            self._env[f"KEYHOUSE_{name}_RATE_PER_SECOND"] = "1000000"
            self._env[f"KEYHOUSE_{name}_RATE_BURST"] = "1000000"
        self._env |= {
            "KEYHOUSE_AUDIOBOOKS_ROOTS": str(self.books),
            "KEYHOUSE_DATA": str(folder / "data"),
            "KEYHOUSE_PLAYLIST_DELIVERY": "console",
            "KEYHOUSE_PLAYLIST_ADMINS": "ada",
        }
        self.http = self.nats = ""
        self.robot: subprocess.Popen[bytes] | None = None

    def process(self, *arguments: str, output: int | IO[bytes]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "keyhouse.cli", *arguments]
        env = self._env
        if arguments[0] != "serve":  # the first version rejected settings of a schema elsewhere
            env = {name: value for name, value in env.items() if "_KINDS_" not in name}
        return subprocess.Popen(
            command, cwd=self.folder, env=env, stdout=output, stderr=self._output.open("ab")
        )

    def command(self, *arguments: str) -> None:
        process = self.process(*arguments, output=subprocess.DEVNULL)
        assert process.wait(START_SECONDS) == 0, (arguments, self.log()[-2_000:])

    def printed(self, *arguments: str) -> str:
        process = self.process(*arguments, output=subprocess.PIPE)
        assert process.stdout is not None
        with process:
            return process.stdout.read().decode().strip()

    def start_robot(self) -> None:
        """Play a channel of playlist until the end of the recording."""
        arguments = ("playlist", "demo", "--seconds", "3600")
        self.robot = self.process(*arguments, output=subprocess.DEVNULL)

    def log(self) -> str:
        return self._output.read_text()


@contextmanager
def serving(source: Path) -> Iterator[Server]:
    """Run a server with the sources of a version; port and folder are its own."""
    with tempfile.TemporaryDirectory(prefix="transcript-") as name:
        folder = Path(name)
        server = Server(folder, source, folder / "server.log")
        server.command("audiobooks", "demo", "books")
        process = server.process(
            *("serve", *SYSTEMS, SCHEMA, "--data", "data", "--json"),
            *("--http", "127.0.0.1:0", "--nats-port", "0"),
            output=subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, server.log()[-2_000:]
            ready = json.loads(line)
            assert ready.get("ready"), ready
            server.http, server.nats = ready["http"], ready["nats"]
            yield server
        finally:
            for running in filter(None, (server.robot, process)):
                running.terminate()
                running.wait(START_SECONDS)
