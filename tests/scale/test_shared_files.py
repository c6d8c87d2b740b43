"""Workers share what one of them keeps in a file: the search of audiobooks, and its covers."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from keyhouse_audiobooks.files.generated_audio import png
from systems.audiobooks.tests.test_audiobooks_scan import album
from tests.scale.support.workers import Workers
from tests.serve.support.serve_process import serving
from tests.support.polling import until

WORKERS = 3
LOGIN = {"username": "admin", "password": "correct horse battery staple"}


@pytest.mark.long
def test_every_worker_finds_books_and_covers_and_one_writes_on_for_a_killed_one(
    tmp_path: Path,
) -> None:
    root = tmp_path / "books"
    (album(root, 1) / "cover.png").write_bytes(png(8, 8, 8))
    arguments = ("audiobooks", "--workers", str(WORKERS), "--nats", "off")
    with serving(tmp_path, *arguments, KEYHOUSE_AUDIOBOOKS_ROOTS=str(root)) as served:
        running = Workers(served, WORKERS, "")

        async def ask(verb: str, path: str, **options: Any) -> httpx.Response:
            """Send a request over a new connection, which any worker accepts."""
            url = f"{served.http}/audiobooks/api/v1"
            async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
                return (await client.request(verb, path, **options)).raise_for_status()

        async def story() -> None:
            await ask("POST", "/auth/setup", json=LOGIN)
            signed_in = await ask("POST", "/auth/login", json=LOGIN)
            token = signed_in.json()["data"]["token"]
            headers = {"Authorization": f"Bearer {token}"}
            await ask("POST", "/operations/scan", json={}, headers=headers)

            async def books() -> list[dict[str, Any]]:
                reply = await ask("GET", "/books", headers=headers)
                found: list[dict[str, Any]] = reply.json()["data"]["items"]
                return [book for book in found if book["cover_url"]]

            [book] = await until(books)

            async def check(title: str) -> None:
                async def is_found() -> bool:
                    reply = await ask("GET", "/search", params={"q": title}, headers=headers)
                    return [each["id"] for each in reply.json()["data"]["items"]] == [book["id"]]

                for worker in range(WORKERS):
                    with running.only(worker):
                        await until(is_found, retry=httpx.HTTPStatusError)
                        cover = await ask("GET", f"/books/{book['id']}/cover", headers=headers)
                        assert cover.content == png(8, 8, 8)

            await check(book["title"])
            for worker in range(WORKERS):  # one of them writes
                await running.kill(worker)
                title = f"Renamed {worker}"
                path = f"/books/{book['id']}"
                await ask("PATCH", path, json={"title": title}, headers=headers)

                async def is_found() -> bool:
                    reply = await ask("GET", "/search", params={"q": title}, headers=headers)  # noqa: B023
                    return bool(reply.json()["data"]["items"])

                await until(is_found, retry=httpx.HTTPStatusError)
                await check(title)

        asyncio.run(story())
        built = [line for line in served.log if line["event"] == "search index built"]
        assert len(built) == 1
