"""A NATS cluster on this machine, for tests of buckets with replicas."""

from pathlib import Path

from keyhouse.nats.server import READY_SECONDS, NatsServer, ReservedPort


class NatsCluster:
    """Three nodes, or more. Each is a NatsServer, which a test may stop or kill."""

    def __init__(self, folder: Path, *, nodes: int = 3, name: str = "keyhouse") -> None:
        self._reserved = [ReservedPort() for _ in range(nodes)]
        routes = [port.number for port in self._reserved]
        self.nodes = [
            NatsServer(folder / f"node-{node}", name=name, routes=routes, node=node)
            for node in range(nodes)
        ]

    @property
    def url(self) -> str:
        return "nats://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def start(self) -> None:
        for node in self.nodes:
            node.start()

    def ready(self) -> None:
        for node in self.nodes:
            node.ready(seconds=4 * READY_SECONDS)  # they elect a leader first

    def stop(self) -> None:
        for node in self.nodes:
            node.kill()
