"""NATS servers for tests: one that all tests of a process share, and the names by which they stay apart on it."""

import atexit
import shutil
import tempfile
from functools import cache
from hashlib import blake2b
from pathlib import Path

from keyhouse.engines.jetstream.server import NatsServer


@cache
def nats_server() -> NatsServer:
    """Started when it is first asked for; it ends with this process."""
    folder = Path(tempfile.mkdtemp(prefix="keyhouse-nats-"))
    server = NatsServer(folder)
    server.start()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.kill)
    server.ready()
    return server


def name_of(folder: Path) -> str:
    """A bucket's name, another for each folder."""
    return blake2b(str(folder).encode(), digest_size=10).hexdigest()
