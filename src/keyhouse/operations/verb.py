"""A verb of a store: what an entry of the table declares."""

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any, Final, Literal

import msgspec
from msgspec import NODEFAULT

from keyhouse.errors import KeyhouseError
from keyhouse.operations.catalog import Catalog, Kind, ServedDerived, ServedRecord
from keyhouse.operations.requests import Parameter
from keyhouse.schema import Derived
from keyhouse.schema.operation import Access

__all__ = ["NO_BODY", "VALUE", "Run", "Verb"]

Run = Callable[..., Awaitable[Any]]
"""The function of a verb: `run(space, served, **arguments)`; of a verb of the whole space
`run(space, catalog, protocol, **arguments)`. The arguments are the members of the request by name.
`expect` is a function `check`, `idempotency_key` a `key`."""

NO_BODY: Final = None
VALUE: Final = Any
"""The body of a verb that takes a whole value, or a merge patch."""


class Verb(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """An operation that every served schema has. Several entries of one name differ in the kinds
    that they work on.

    `name`: that of the NATS subject and of the metrics. `access`: the scope of its callers.
    `http`: method and path, in which `{kind}` and `{name}` are those of the record and `{address}`
    its key fields; empty: there is no route. `kinds`: what it works on; none: the whole space.
    `id`: the name of the operation in the OpenAPI document, if it is another one; `docs`: its
    description there, by kind.

    `key` is how a request gives key fields:

        address   all of them, in the path
        query     some of them, by name: `named(served)`
        filters   leading ones, and a range of the next, of the record or of a derived row `by`
        row       those of a derived row of the class `row`, which `by` names
        none      none

    `query` are further parameters; `body` is a Struct whose members are arguments, or VALUE.
    `described_as` is its type in the OpenAPI document, where the function decodes parts of it
    itself, and `example` makes one for the document.
    `is_conditional`: the request may expect a revision. `is_idempotent`: it may have a key by which
    a repeat is applied once. `shows_value`: the function takes whether its caller may read.
    `reply` is the type of the answer; `statuses` are those of HTTP, `locates`: with the address of
    the new record. `problems` are its own errors. `is_served` returns whether a record has the
    route. `batch` makes it an operation of a batch: a function of a BatchStep, which returns the
    entry that it wrote, or None; with `ttl` if `batch_takes_ttl`.
    """

    name: str
    access: Access
    run: Run | None
    http: str = ""
    kinds: tuple[Kind, ...] = ()
    id: str = ""
    docs: Mapping[Kind, str] | str = ""
    key: Literal["address", "query", "filters", "row", "none"] = "none"
    named: Callable[[ServedRecord], tuple[str, ...]] | None = None
    row: type[Derived] = Derived
    query: tuple[Parameter, ...] = ()
    body: Any = NO_BODY
    described_as: Any = None
    example: Callable[[Catalog], Any] | None = None
    media_types: tuple[str, ...] = ("application/json",)
    is_conditional: bool = False
    is_idempotent: bool = False
    shows_value: bool = False
    reply: Any = None
    statuses: tuple[int, ...] = (200,)
    locates: bool = False
    problems: tuple[type[KeyhouseError], ...] = ()
    is_served: Callable[[ServedRecord], bool] | None = None
    batch: Run | None = None
    batch_takes_ttl: bool = False

    @property
    def method(self) -> str:
        return self.http.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.http.partition(" ")[2]

    @cached_property
    def body_members(self) -> tuple[str, ...]:
        """The members of a body that are arguments, by name; none of a whole value."""
        if self.body is NO_BODY or self.body is VALUE:
            return ()
        return tuple([each.encode_name for each in msgspec.structs.fields(self.body)])

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """The arguments that parameters and members of a body give, by their names over NATS."""
        return (*(name for name, _, _ in self.query), *self.body_members)

    @cached_property
    def required(self) -> tuple[str, ...]:
        """The arguments that a request must have."""
        if self.body is VALUE:
            return ("value",)
        own = () if self.body is NO_BODY else msgspec.structs.fields(self.body)
        return (
            *(name for name, _, default in self.query if default is NODEFAULT),
            *(each.encode_name for each in own if each.required),
        )

    @cached_property
    def members(self) -> frozenset[str]:
        """The members that a request over NATS may have."""
        by = ("by",) if self.key in ("filters", "row") else ()
        fields = () if self.key == "none" else ("fields",)
        expect = ("expect",) if self.is_conditional and self.access == "write" else ()
        key = ("idempotency_key",) if self.is_idempotent else ()
        return frozenset(
            (*self.kinds, *fields, *by, *self.arguments, *self.required, *expect, *key)
        )

    def rows(self, served: ServedRecord) -> Mapping[str, ServedDerived[Any]]:
        """Return the derived rows of a record that a request may name."""
        return served.rows(self.row)

    def has_route(self, served: ServedRecord) -> bool:
        if served.kind not in self.kinds or not self.http:
            return False
        if self.key == "row" and not self.rows(served):
            return False
        return self.is_served is None or self.is_served(served)

    def doc(self, served: ServedRecord) -> str:
        text = self.docs if isinstance(self.docs, str) else self.docs[served.kind]
        return text.replace("{name}", served.name)
