"""The data folder is locked by one process, and by the nats-server that outlives it for a moment
when it is killed.
"""

import asyncio
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from keyhouse.errors import LockedError, UsageError
from keyhouse.serve.data_dir import DataDir, is_alive
from keyhouse.serve.nats_access import embedded_nats
from tests.support.polling import until
from tests.support.program import SOURCE

HOLDER = """
import asyncio, sys
from pathlib import Path
from keyhouse.nats import server
from keyhouse.serve.data_dir import DataDir
from keyhouse.serve.nats_access import embedded_nats

async def main():
    server.HAS_PARENT_DEATH_SIGNAL = sys.argv[2] == "kernel" and server.HAS_PARENT_DEATH_SIGNAL
    async with embedded_nats(DataDir.take(Path(sys.argv[1])), 0) as nats:
        print(nats.process_id, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def test_a_locked_folder_is_rejected_with_the_process_that_has_it(tmp_path: Path) -> None:
    taken = DataDir.take(tmp_path / "new" / "folder")
    assert (tmp_path / "new" / "folder").stat().st_mode & 0o077 == 0
    with pytest.raises(LockedError) as refused:
        DataDir.take(taken.path)
    assert refused.value.fields == {"data": str(taken.path), "process": os.getpid()}
    assert not taken.is_open_to_others
    taken.path.chmod(0o755)
    assert taken.is_open_to_others
    taken.release()
    DataDir.take(taken.path).release()


def test_an_unusable_folder_is_rejected_with_advice(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="--data") as refused:
        DataDir.take(tmp_path / "file" / "folder")
    assert refused.value.fields["reason"] == "Not a directory"


@pytest.mark.parametrize("ended_by", ["kernel", "pipe"])
def test_the_nats_server_ends_with_a_parent_that_is_killed(tmp_path: Path, ended_by: str) -> None:
    """The folder stays locked until it has ended: the next process waits for it, and never runs
    beside it.
    """
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    program = [sys.executable, "-c", HOLDER, str(tmp_path), ended_by]
    with subprocess.Popen(program, env=environment, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        nats = int(holder.stdout.readline())
        with pytest.raises(LockedError) as refused:
            DataDir.take(tmp_path)
        assert refused.value.fields["process"] == holder.pid
        os.kill(nats, signal.SIGSTOP)  # it is slow to end
        holder.kill()
        holder.wait()
        with subprocess.Popen(["/bin/sh", "-c", f"sleep 0.5; kill -CONT {nats}"]):
            DataDir.take(tmp_path).release()
    assert not is_alive(nats)


def test_a_nats_server_that_exits_is_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when that fails at first. Regression: the task that watches it ended silently at a full
    disk, and the server was neither restarted nor stopped.
    """

    async def main() -> None:
        data = DataDir.take(tmp_path)
        async with embedded_nats(data, 0) as server:
            begin, failed = server.start, list[bool]()

            def start() -> None:
                if not failed:
                    failed.append(True)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                begin()

            monkeypatch.setattr(server, "start", start)
            first = server.process_id
            assert first is not None
            os.kill(first, signal.SIGKILL)
            await until(lambda: server.process_id not in (None, first))
            await asyncio.to_thread(server.ready)
        assert failed and server.process_id is None
        data.release()

    asyncio.run(main())


def test_a_port_in_use_is_rejected_before_anything_starts(tmp_path: Path) -> None:
    async def main() -> None:
        data = DataDir.take(tmp_path)
        taker = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port = taker.sockets[0].getsockname()[1]
        async with taker:
            with pytest.raises(UsageError, match="--nats-port"):
                async with embedded_nats(data, port):
                    pass
        data.release()

    asyncio.run(main())
    assert not (tmp_path / "nats").exists()
