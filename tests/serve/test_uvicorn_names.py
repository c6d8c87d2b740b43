"""The undocumented names of uvicorn that `uvicorn_protocol` and `write_coalescing` of
`keyhouse.serve` use still exist.

If one fails after an upgrade of uvicorn: the heads of these modules say what each name is for. No
other module uses them.
"""

import asyncio
import inspect
import logging
import re
from types import ModuleType
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from keyhouse.serve import uvicorn_protocol, write_coalescing

PROTOCOL = {
    "_unset_keepalive_if_required",
    "cycle",
    "flow",
    "headers",
    "loop",
    "on_header",
    "on_headers_complete",
    "on_body",
    "on_message_complete",
    "on_response_complete",
    "parser",
    "pipeline",
    "scope",
    "server_state",
    "transport",
}
CYCLE = {
    "default_headers",
    "disconnected",
    "flow",
    "keep_alive",
    "message_event",
    "more_body",
    "on_response",
    "response_complete",
    "response_started",
    "scope",
    "send",
    "transport",
    "waiting_for_100_continue",
}


async def protocol() -> HttpToolsProtocol:
    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    config = uvicorn.Config(app, lifespan="off", log_config=None)
    config.load()
    return HttpToolsProtocol(config, ServerState(), {})


async def cycle() -> RequestResponseCycle:
    unused: Any = None
    return RequestResponseCycle(
        scope=unused,
        transport=unused,
        flow=unused,
        logger=logging.getLogger(),
        access_logger=logging.getLogger(),
        access_log=False,
        default_headers=[],
        message_event=asyncio.Event(),
        expect_100_continue=False,
        keep_alive=True,
        on_response=lambda: None,
    )


@pytest.mark.parametrize(("make", "names"), [(protocol, PROTOCOL), (cycle, CYCLE)])
def test_uvicorn_has_the_names_in_use(make: Any, names: set[str]) -> None:
    made = asyncio.run(make())
    missing = {name for name in names if not hasattr(made, name)}
    assert not missing, f"uvicorn's {type(made).__name__} has changed: see the module's head"


def test_the_url_is_set_when_a_message_begins() -> None:
    assert 'self.url = b""' in inspect.getsource(HttpToolsProtocol.on_message_begin)


def test_send_is_a_method_of_the_cycle() -> None:
    """`coalesced` finds the cycle by it."""
    assert "self.scope, self.receive, self.send" in inspect.getsource(RequestResponseCycle.run_asgi)


def test_a_status_line_is_bytes() -> None:
    assert httptools_impl.STATUS_LINE[200] == b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("module", "names"), [(uvicorn_protocol, PROTOCOL), (write_coalescing, CYCLE)]
)
def test_the_head_of_the_module_lists_the_names(module: ModuleType, names: set[str]) -> None:
    assert set(re.findall(r"`(\w+)`", module.__doc__ or "")) >= names
