"""The guides for services: their programs are served and do what the page says."""

import shutil
from pathlib import Path

import httpx

from tests.docs.pages import DOCS, ROOT, blocks
from tests.serve.support.serve_process import Serving, serving
from tests.support.polling import wait_until
from tests.support.program import run


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

        def archived() -> httpx.Response | None:
            found = call(running, "GET", "/documents/archive/a")
            return None if found.status_code == 204 else found

        assert wait_until(archived).json() == stored.json()
        assert (tmp_path / "data" / "archive.db").is_file()
        assert running.end() == 0


def test_the_guide_to_background_operations(tmp_path: Path) -> None:
    written(tmp_path, "background-operations", "printer")
    with serving(tmp_path, "printer:service") as running:
        id = call(running, "POST", "/printer/operations", json=25).json()["id"]

        def completed() -> dict[str, object] | None:
            found = dict(call(running, "GET", f"/printer/operations/{id}").json())
            return found if found["status"] == "completed" else None

        found = wait_until(completed)
        assert (found["current"], found["total"]) == (25, 25)
        log = call(running, "GET", f"/printer/operations/{id}/log").json()
        assert log == ["pages 0 to 9", "pages 10 to 19", "pages 20 to 24"]
        assert call(running, "DELETE", f"/printer/operations/{id}").json() == {"cancelled": False}
        ended = 'printer_operations_total{outcome="completed",type="write"} 1.0'
        assert ended in running.get("/metrics").text
        assert running.end() == 0


def test_the_guide_to_search(tmp_path: Path) -> None:
    written(tmp_path, "search", "films")
    with serving(tmp_path, "films:service") as running:
        film = {"id": "1", "title": "Amélie", "genres": ["comedy"], "plot": "A café in Montmartre."}
        revision = call(running, "PUT", "/films/films/1", json=film).json()["revision"]
        for query in ("amelie", "CAFE mont", "comedy"):
            path = f"/films/search?q={query}&after={revision}&genre=comedy"
            [found] = call(running, "GET", path).json()
            assert found["title"] == "Amélie"
        assert call(running, "GET", "/films/search?q=amelie&genre=drama").json() == []
        assert running.end() == 0
    assert list((tmp_path / "data" / "search").glob("films-main-*.db"))


def test_the_guide_to_tokens_makes_one_that_the_service_accepts(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "overlay" / "scores.py", tmp_path)
    written(tmp_path, "tokens", "login")
    variables = {"KEYHOUSE_SCORES_JWT_SECRET": "of both, and 32 bytes long or longer"}
    token = run(program=("login.py",), cwd=tmp_path, environment=variables).stdout.strip()
    with serving(tmp_path, "scores:SCORES", "--nats", "off", **variables) as running:
        headers = {"Authorization": f"Bearer {token}"}
        path = "/scores/records/score"
        assert call(running, "GET", path, headers=headers).json()["items"] == []
        foreign = headers | {"Keyhouse-Space": "bob"}
        assert call(running, "GET", path, headers=foreign).status_code == 403
