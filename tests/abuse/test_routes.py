"""Every HTTP route under clients that never read, hold responses and repeat: a neighbor does not
notice, and memory stays bounded.

A usual run attacks each route for a moment, beside one neighbor; `make soak` each for a minute.
"""

import threading
from pathlib import Path

import pytest

from tests.abuse import routes
from tests.abuse.support.attack import Client, run
from tests.abuse.support.server import ServerProcess
from tests.soak import SOAK, size

SECONDS_EACH = 0.4


@pytest.mark.long
@pytest.mark.soak
def test_no_route_takes_memory_or_time_from_a_neighbor(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, **routes.TABLES) as server:
        calls = routes.route_calls(server)
        assert len(calls) > 15, "the documents of the running server have its routes"
        routes.prepare(server, calls)
        if SOAK:
            for call in calls:
                run(server, *routes.clients(call), seconds=size(5, 60)).check(call.path)
        else:
            one_by_one = [_for_a_moment(calls)]
            run(server, *one_by_one, seconds=SECONDS_EACH * len(calls)).check()
        assert "unhandled exception" not in server.log.read_text()


def _for_a_moment(calls: list[routes.RouteCall]) -> Client:
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
            stop.wait(SECONDS_EACH)
            moment.set()
            for thread in threads:
                thread.join(30)

    return attack
