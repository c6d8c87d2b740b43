"""A DynamoDB emulation, `ministack`, on loopback. It keeps the guarantees that the engine needs.

It runs in its own process and folder, on uvicorn: its bundled server takes three times as long per
request. The process reads a pipe held only by its parent: when the parent ends, in any way, the
server stops and the folder is removed.
"""

import atexit
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 10.0
STARTS: Final = 5
"""Another program may take the free port before the server binds it."""

REGION: Final = "us-east-1"
ACCESS_KEY: Final = "test"
"""Used as id and secret; the emulation accepts any."""

_PROGRAM: Final = """
import os, shutil, sys, threading

def end():
    sys.stdin.buffer.read()
    shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)
    os._exit(0)

threading.Thread(target=end, daemon=True).start()
import uvicorn
uvicorn.run(
    "ministack.app:app",
    host="127.0.0.1",
    port=int(os.environ["GATEWAY_PORT"]),
    log_level="error",
    access_log=False,
    timeout_keep_alive=75,
)
"""


class DynamoDBServer:
    """A server that runs from construction. Its data is in memory."""

    def __init__(self) -> None:
        for _ in range(STARTS):
            self._folder = Path(tempfile.mkdtemp(prefix="keyhouse-dynamodb-"))
            self._port = _free_port()
            self._process = self._start_process()
            if self._wait_until_ready():
                atexit.register(self.close)
                return
            self._stop_process()
        raise TimeoutError(
            "ministack did not start; it comes with: pip install ministack uvicorn httptools"
        )

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        atexit.unregister(self.close)
        self._stop_process()

    def _start_process(self) -> subprocess.Popen[bytes]:
        folder = str(self._folder)
        own = {
            "GATEWAY_PORT": str(self._port),
            "SERVICES": "dynamodb",
            "IOT_MTLS_ENABLED": "0",  # it would listen on all interfaces, if port 8883 is free
            "LOG_LEVEL": "ERROR",
            "TMPDIR": folder,
            "STATE_DIR": folder,
            "S3_DATA_DIR": folder,
        }
        return subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=os.environ | own,
            start_new_session=True,
        )

    def _wait_until_ready(self) -> bool:
        """Return whether the server answers before it exits or the timeout."""
        deadline = time.monotonic() + START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            with (
                suppress(URLError, OSError),
                urlopen(f"{self.endpoint}/_ministack/health", timeout=5),
            ):
                return True
            time.sleep(0.05)
        return False

    def _stop_process(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@cache
def dynamodb_server() -> DynamoDBServer:
    """Return the shared server of this process, for tests that do not change it."""
    return DynamoDBServer()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
