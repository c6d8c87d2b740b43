"""The private names of nats-py that `keyhouse.nats.client` uses still exist.

If one fails after an upgrade of nats-py: read the table in the head of `keyhouse/nats/client.py`,
which says what each name is for, and adapt that module. No other module uses private names.
"""

import ast
import inspect
import re
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.aio.transport import TcpTransport
from nats.protocol import parser

import keyhouse
from keyhouse.nats import client
from keyhouse.nats import parser as own_parser

METHODS = {
    "_close": ["self", "status", "do_cbs"],
    "_connect_command": ["self"],
    "_parse_server_uri": ["connect_url"],
    "_process_connect_init": ["self"],
    "_process_err": ["self", "err_msg"],
    "_process_headers": ["self", "headers"],
    "_process_info": ["self", "info", "initial_connection"],
    "_process_op_err": ["self", "e"],
    "_process_msg": ["self", "sid", "subject", "reply", "data", "headers"],
    "_process_ping": ["self"],
    "_process_pong": ["self"],
}
ATTRIBUTES = {
    "_current_server",
    "_error_cb",
    "_flush_queue",
    "_flusher_task",
    "_max_payload",
    "_pending",
    "_pending_data_size",
    "_pings_outstanding",
    "_pongs",
    "_pongs_received",
    "_ps",
    "_reading_task",
    "_reconnection_task",
    "_server_pool",
    "_sid",
    "_status",
    "_transport",
}
TRANSPORT = {"_bare_io_reader", "_bare_io_writer", "_io_reader", "_io_writer"}
MODULES = {Path(client.__file__), Path(own_parser.__file__)}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_the_parameters_that_the_client_relies_on(name: str) -> None:
    method = getattr(Client, name, None)
    assert method is not None, f"nats-py no longer has Client.{name}: see keyhouse/nats/client.py"
    assert list(inspect.signature(method).parameters) == METHODS[name]


@pytest.mark.parametrize("name", sorted(ATTRIBUTES))
def test_an_attribute_exists(name: str) -> None:
    assert hasattr(Client(), name), (
        f"nats-py no longer has Client.{name}: see keyhouse/nats/client.py"
    )


def test_the_transport_has_its_two_streams() -> None:
    assert set(vars(TcpTransport())) >= TRANSPORT  # type: ignore[no-untyped-call]


def test_the_parser_of_nats_py_is_called_by_two_methods() -> None:
    source = inspect.getsource(inspect.getmodule(Client))  # type: ignore[arg-type]
    assert set(re.findall(r"self\._ps\.(\w+)", source)) == {"reset", "parse"}
    assert {"reset", "parse"} <= set(vars(parser.Parser))


def test_the_table_in_the_module_lists_every_private_name_in_use() -> None:
    own = {
        name
        for module in (client, own_parser)
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__
        for name in (*vars(kind), *_assigned(kind))
    }
    used = {
        node.attr
        for module in MODULES
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Attribute) and re.match(r"_[a-z]", node.attr)
    }
    inherited = set(METHODS) | ATTRIBUTES | TRANSPORT
    assert used - own - inherited == set(), "list it in METHODS or ATTRIBUTES, and in the table"
    assert client.__doc__ is not None
    for name in inherited:
        assert f"{name}`" in client.__doc__, f"{name} is not in the table of the module's head"


def _assigned(kind: type) -> set[str]:
    return set(re.findall(r"self\.(_\w+)(?::[^=\n]+)? = ", inspect.getsource(kind))) - ATTRIBUTES


COMMON = {"_close", "_pending", "_ps", "_sid", "_status", "_transport"}
"""Names that attributes of other classes have too."""


@pytest.mark.parametrize("name", sorted((METHODS.keys() | ATTRIBUTES) - COMMON))
def test_no_other_module_uses_a_private_name_of_nats_py(name: str) -> None:
    package = Path(keyhouse.__file__).parent
    users = {path for path in package.rglob("*.py") if re.search(rf"\.{name}\b", path.read_text())}
    assert users <= MODULES
