"""Every HTTP route under clients that never read, hold responses and repeat: a neighbor does not
notice, and memory stays bounded.

A usual run attacks each route for a moment, beside one neighbor; `make soak` each for a minute.
"""

import threading
from pathlib import Path

import pytest

from keyhouse.systems.registry import NAMES, has_service
from tests.abuse import routes
from tests.abuse.support.attack import Client, run
from tests.abuse.support.server import ServerProcess
from tests.sizes import SOAK, size

SECONDS_EACH = 0.15
SECONDS = 10
"""Of a usual run: a system with many routes has less for each."""

SYSTEMS = [name for name in NAMES if has_service(name) and name != "rosey"]
"""Systems with routes: rosey has none."""
NEIGHBORS = ("rosey", "streamkit")
SCHEMAS = {"recipes": "tests.service.schema_service.support.recipes:BOX"}
"""Schemas that are served, by name."""


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.parametrize("system", [*SYSTEMS, *SCHEMAS, "studio", ""])
def test_no_route_takes_memory_or_time_from_a_neighbor(system: str, tmp_path: Path) -> None:
    also = [SCHEMAS.get(system, system)] if system in SYSTEMS or system in SCHEMAS else []
    named = dict.fromkeys([*NEIGHBORS, *also])
    tables = {
        name: table for name, table in routes.TABLES.items() if name in {*named, system, "studio"}
    }
    with ServerProcess(tmp_path, *named, **tables) as server:
        calls = routes.route_calls(server, system)
        assert calls, "the routing table has its routes"
        routes.prepare(server, calls)
        if SOAK:
            for call in calls:
                run(server, *routes.clients(call), seconds=size(5, 5, 60)).check(call.path)
        else:
            each = min(SECONDS_EACH, SECONDS / len(calls))
            run(server, _for_a_moment(calls, each), seconds=each * len(calls)).check()
        assert "unhandled exception" not in server.log.read_text()


@pytest.mark.long
def test_every_service_of_the_routing_table_is_attacked(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, *SYSTEMS, *SCHEMAS.values(), **routes.TABLES) as server:
        assert routes.served_systems(server) == {*SYSTEMS, *SCHEMAS, "studio", ""}


def _for_a_moment(calls: list[routes.RouteCall], seconds: float) -> Client:
    """Return a client that attacks each route in turn."""

    def attack(server: ServerProcess, stop: threading.Event) -> None:
        for call in calls:
            moment = threading.Event()
            threads = [
                threading.Thread(target=client, args=(server, moment))
                for client in routes.clients(call)
            ]
            for thread in threads:
                thread.start()
            stop.wait(seconds)
            moment.set()
            for thread in threads:
                thread.join(30)

    return attack
