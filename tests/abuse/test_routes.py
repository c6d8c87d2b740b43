"""Every HTTP route under clients that never read, hold responses and repeat: a neighbor does not
notice, and memory stays bounded.

A usual run attacks each route for a moment, beside one neighbor; `make soak` each for a minute.
"""

from pathlib import Path

import pytest

from keyhouse.service.registry import has_service, system_names
from tests.abuse import routes
from tests.abuse.support.attack import check_neighbor
from tests.abuse.support.server import ServerProcess
from tests.sizes import size

SECONDS_EACH = size(50, 150, 150) / 1_000
TOGETHER = size(4, 1, 1)
"""Routes that are attacked at once."""

SYSTEMS = [name for name in system_names() if has_service(name) and name != "rosey"]
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
        attacks = {f"{call.method} {call.path}": routes.clients(call) for call in calls}
        check_neighbor(server, attacks, seconds=SECONDS_EACH, together=TOGETHER)
        assert "unhandled exception" not in server.log.read_text()


@pytest.mark.long
def test_every_service_of_the_routing_table_is_attacked(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, *SYSTEMS, *SCHEMAS.values(), **routes.TABLES) as server:
        assert routes.served_systems(server) == {*SYSTEMS, *SCHEMAS, "studio", ""}
