"""`python -m benchmarks.services.history_server FOLDER`: viewing history on SQLite, durable."""

from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from benchmarks.services.app_process import run, serve
from benchmarks.services.http_server import UNLIMITED
from keyhouse import open_engine
from keyhouse.http import make_app
from keyhouse.service.spec import ServiceContext
from keyhouse_history import SYSTEM

SECRET: Final = "only-for-benchmarks-0123456789abcdef-0123456789"


async def main(folder: Path) -> None:
    engine = await open_engine(f"sqlite:{folder}/history.db?layout=history")
    settings = UNLIMITED | {"jwt_secret": SECRET}
    context = ServiceContext(
        engine=engine, data=folder, metrics=CollectorRegistry(), settings=settings
    )
    await serve(make_app([SYSTEM.service(context)], registry=CollectorRegistry()))


if __name__ == "__main__":
    run(main)
