"""`python -m benchmarks.services.constant_server FOLDER`: reads the body and returns a constant."""

from pathlib import Path
from typing import Any

from benchmarks.services.app_process import run, serve
from benchmarks.services.http_server import constant


async def constant_post(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await constant(scope, receive, send)


async def main(_: Path) -> None:
    await serve(constant_post)


if __name__ == "__main__":
    run(main)
