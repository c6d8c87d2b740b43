"""A served schema that is killed: every acknowledged write is there, and each counts once."""

import shutil
import signal
import threading
from pathlib import Path

import httpx
import pytest

from tests.serve.support.serve_process import serving
from tests.service.schema_service.support import recipes
from tests.service.schema_service.support.engine_urls import SERVED_ENGINES, engine_url
from tests.support.program import run

WRITERS = 4


@pytest.mark.long
@pytest.mark.parametrize("kind", SERVED_ENGINES)
def test_a_killed_service_loses_no_acknowledged_write(kind: str, tmp_path: Path) -> None:
    shutil.copy(recipes.__file__, tmp_path / "recipes.py")
    served = ("recipes:BOX", "--nats", "off", "--engine", engine_url(kind, tmp_path))
    token = run("token", "recipes:BOX", "--space", "ann", "--data", "data", cwd=tmp_path)
    headers = {"Authorization": f"Bearer {token.stdout.strip()}"}
    acknowledged: list[set[int]] = [set() for _ in range(WRITERS)]
    attempted = [0] * WRITERS

    def client(url: str) -> httpx.Client:
        base = f"{url}/recipes"
        return httpx.Client(base_url=base, headers=headers, trust_env=False, timeout=60)

    def write(writer: int, url: str) -> None:
        with client(url) as box:
            try:
                while True:
                    number = attempted[writer]
                    attempted[writer] += 1
                    operations = [
                        {
                            "op": "put",
                            "record": "note",
                            "fields": {"name": f"{writer}-{number}"},
                            "value": "x",
                        },
                        {"op": "add", "counter": "views", "fields": {"id": "all"}, "by": 1},
                    ]
                    done = box.post("/batch", json={"operations": operations})
                    if done.status_code == 200:
                        acknowledged[writer].add(number)
            except httpx.HTTPError:
                return

    for killed in (1, 2, 3):
        with serving(tmp_path, *served) as process:
            writers = [
                threading.Thread(target=write, args=(writer, process.http))
                for writer in range(WRITERS)
            ]
            for thread in writers:
                thread.start()
            while sum(map(len, acknowledged)) < 100 * killed:
                threading.Event().wait(0.05)
            process.end(signal.SIGKILL)
            for thread in writers:
                thread.join()
    with (
        serving(tmp_path, *served) as process,
        client(process.http) as box,
    ):
        stored: set[str] = set()
        query = {"limit": "500"}
        while True:
            page = box.get("/records/note", params=query).json()
            stored |= {item["fields"]["name"] for item in page["items"]}
            if "cursor" not in page:
                break
            query["cursor"] = page["cursor"]
        for writer, numbers in enumerate(acknowledged):
            assert {f"{writer}-{number}" for number in numbers} <= stored
        assert box.get("/counters/views/all").json() == {"value": len(stored)}
