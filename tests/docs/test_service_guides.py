"""The guides for services: their programs are served and do what the page says."""

import time
from pathlib import Path

import httpx

from tests.docs.pages import DOCS, blocks
from tests.serve.support.serve_process import Serving, serving


def written(folder: Path, guide: str, module: str) -> None:
    page = (DOCS / "guides" / f"{guide}.md").read_text()
    (folder / f"{module}.py").write_text("\n".join(blocks(page, "python")))


def call(running: Serving, method: str, path: str, **named: object) -> httpx.Response:
    return httpx.request(method, running.http + path, timeout=10, trust_env=False, **named)  # type: ignore[arg-type]


def test_the_guide_to_engines_threads_and_the_bus(tmp_path: Path) -> None:
    written(tmp_path, "service-host", "documents")
    with serving(tmp_path, "documents:service") as running:
        stored = call(running, "PUT", "/documents/documents/a", json="text")
        assert stored.status_code == 200 and len(stored.json()["digest"]) == 128
        deadline = time.monotonic() + 20
        while (found := call(running, "GET", "/documents/archive/a")).status_code == 204:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert found.json() == stored.json()
        assert (tmp_path / "data" / "archive.db").is_file()
        assert running.end() == 0
