"""NATS servers with a custom configuration: with users, without JetStream."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from keyhouse.nats.server import NatsServer


class ConfiguredServer(NatsServer):
    """`more` is merged into the configuration; a value of None removes a member."""

    def __init__(self, folder: Path, more: dict[str, Any]) -> None:
        super().__init__(folder)
        self.more = more

    def _configuration(self) -> dict[str, Any]:
        whole = super()._configuration() | self.more
        return {name: value for name, value in whole.items() if value is not None}

    def address(self, user: str = "") -> str:
        return f"nats://{user}127.0.0.1:{self.port}"


@contextmanager
def configured(folder: Path, **more: Any) -> Iterator[ConfiguredServer]:
    server = ConfiguredServer(folder, more)
    server.start()
    try:
        server.ready()
        yield server
    finally:
        server.kill()
