"""Replies and errors of operations of one's own: no private member leaves, and no class is lost."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypedDict, TypeVar

import pytest
from msgspec import Struct

from keyhouse import Record, RemoteStore, Schema, Space, Store, operation
from keyhouse.errors import ConflictError, DeclarationError, KeyhouseError
from keyhouse.store import Entry
from tests.service.schema_service.support.nats_caller import called
from tests.service.schema_service.support.served import serving
from tests.support.engine_openers import memory

T = TypeVar("T")


class Shown(Struct, kw_only=True):
    id: str


class Account(Shown, kw_only=True):
    pin: str = ""


class Other(Account, kw_only=True):
    pass


class Many(Struct):
    accounts: list[Account]


class Deep(Struct):
    by_name: dict[str, tuple[int, Many | None]]


class Tree(Struct):
    account: Account | None = None
    children: "list[Tree]" = []


@dataclass
class Plain:
    account: Account


class Typed(TypedDict):
    account: Account


class InPlain(Struct):
    plain: Plain


class InTyped(Struct):
    typed: Typed


class Box(Struct, Generic[T]):
    item: T


class InBox(Struct):
    box: Box[Account]


class InSet(Struct):
    entries: frozenset[str]
    entry: Entry[Account]


ACCOUNT = Record(Account, "account:{id}", private=("pin",))


def _operation(reply: type[Struct]) -> Any:
    async def show(store: Store) -> Any:
        return await store.get(ACCOUNT, id="ann")

    show.__annotations__["return"] = reply
    return operation(access="read")(show)


@pytest.mark.parametrize(
    "reply", [Account, Other, Many, Deep, Tree, InPlain, InTyped, InBox, InSet]
)
def test_a_reply_with_a_record_that_has_private_members_is_an_error_of_the_declaration(
    reply: type[Struct],
) -> None:
    """The service sent them: an operation returns what its function returns."""
    with pytest.raises(DeclarationError, match="return a Struct of the members to show") as raised:
        Schema("club", ACCOUNT, operations=[_operation(reply)], space=Space("a club"))
    assert raised.value.fields["private"] == ["pin"]
    assert raised.value.fields["record"] == "account"


class Listed(Struct):
    first: Shown
    others: list[Shown]


@operation(access="read")
async def show_one(store: Store) -> Shown:
    return await store.get(ACCOUNT, id="ann") or Shown(id="none")


@operation(access="read")
async def show_all(store: Store) -> Listed:
    found = Account(id="ann", pin="1234")
    return Listed(found, [found])


class LockedOutError(ConflictError):
    pass


class PaymentError(KeyhouseError):
    status = 402


class StrictError(ConflictError):
    def __init__(self, number: int) -> None:
        super().__init__("Too strict.", number=number)


@operation(access="read")
async def lock_out(store: Store) -> None:
    raise LockedOutError("Wait.", seconds=3)


@operation(access="read")
async def pay(store: Store) -> None:
    raise PaymentError("Pay first.")


@operation(access="read")
async def be_strict(store: Store) -> None:
    raise StrictError(3)


@operation(access="read")
async def be_local(store: Store) -> None:
    class HiddenError(ConflictError):
        pass

    raise HiddenError("Nobody knows this class.")


class Anything(Struct):
    kind: str
    item: Any = None


class Things(Struct):
    items: list[dict[str, Any]]


@dataclass
class Carrier:
    item: Any


FOUND = Account(id="ann", pin="planted-1234")
HIDDEN: dict[str, Any] = {
    "record": FOUND,
    "subclass": Other(id="ann", pin="planted-1234"),
    "list": [1, [FOUND]],
    "tuple": (FOUND,),
    "dict": {"a": {"b": FOUND}},
    "struct": Box(FOUND),
    "dataclass": Carrier(FOUND),
    "entry": Entry(FOUND, "account:ann", ("ann",), 1, names=("id",)),
}
"""A record with a private member, in everything that msgspec encodes."""


@operation(access="read")
async def show_anything(store: Store, request: Anything) -> Anything:
    return Anything(request.kind, HIDDEN.get(request.kind, {"a": [Shown(id="ann"), 1]}))


@operation(access="read", name="show_things")
async def _things(store: Store, request: Anything) -> Things:
    return Things([{"item": HIDDEN[request.kind]}])


@operation(access="read", name="show_box")
async def _box(store: Store, request: Anything) -> Box:  # type: ignore[type-arg]  # on purpose
    return Box(HIDDEN[request.kind])


@operation(access="read")
async def fail_with_anything(store: Store, request: Anything) -> None:
    raise ConflictError("Not now.", found=HIDDEN[request.kind])


OPERATIONS: list[Any] = [show_one, show_all, lock_out, pay, be_strict, be_local]
HOLDERS: list[Any] = [show_anything, _things, _box, fail_with_anything]
OPERATIONS += HOLDERS
CLUB = Schema("club", ACCOUNT, operations=OPERATIONS, space=Space("a club"))


def test_a_reply_has_the_members_of_its_type_although_its_objects_have_more(tmp_path: Path) -> None:
    """A function that declares the base of a record may return the record itself."""
    with serving(memory(tmp_path), tmp_path, CLUB) as served:
        box = served.client()
        box.put("/records/account/ann", json={"pin": "1234"})
        assert box.post("/operations/show_one").json() == {"id": "ann"}
        listed = {"first": {"id": "ann"}, "others": [{"id": "ann"}]}
        assert box.post("/operations/show_all").json() == listed

    async def over_nats() -> Any:
        async with called("memory", tmp_path, CLUB) as call:
            return await call("show_all", {})

    assert asyncio.run(over_nats()) == {"success": True, **listed}


def test_an_error_of_ones_own_is_raised_as_its_class_by_a_remote_store(tmp_path: Path) -> None:
    """It was the nearest class of its status, with the `type` alone."""
    found: dict[str, KeyhouseError] = {}

    async def story(url: str, token: str) -> None:
        async with RemoteStore(CLUB, url, token) as store:
            for each in (lock_out, pay, be_strict, be_local):
                with pytest.raises(KeyhouseError) as raised:
                    await store.call(each)
                found[each.name] = raised.value

    with serving(memory(tmp_path), tmp_path, CLUB) as served:
        asyncio.run(story(served.url, served.token()))
    assert type(found["lock_out"]) is LockedOutError
    assert found["lock_out"].fields == {"seconds": 3}
    assert type(found["pay"]) is PaymentError
    assert type(found["be_strict"]) is ConflictError and found["be_strict"].type == "strict"
    assert type(found["be_local"]) is ConflictError and found["be_local"].type == "hidden"


def test_no_record_with_private_members_leaves_in_a_member_of_any_type_or_in_an_error(
    tmp_path: Path,
) -> None:
    """Types tell what a reply shows, except `Any`, a type without its parameter, and the
    fields of an error."""
    calls = [(each.name, kind) for each in HOLDERS for kind in HIDDEN]
    with serving(memory(tmp_path), tmp_path, CLUB) as served:
        box = served.client()
        over_http = {
            (name, kind): box.post(f"/operations/{name}", json={"kind": kind})
            for name, kind in calls
        }
        plain = box.post("/operations/show_anything", json={"kind": "plain"}).json()
    assert plain == {"kind": "plain", "item": {"a": [{"id": "ann"}, 1]}}
    for (name, kind), reply in over_http.items():
        assert reply.status_code == (409 if name == "fail_with_anything" else 500), (name, kind)
        assert "planted" not in reply.text, (name, kind)
    assert over_http["fail_with_anything", "record"].json()["fields"] == {"found": "Account"}

    async def over_nats() -> list[Any]:
        async with called("memory", tmp_path, CLUB) as call:
            return [await call(name, {"kind": kind}) for name, kind in calls]

    for reply in asyncio.run(over_nats()):
        assert not reply["success"] and "planted" not in str(reply), reply


@pytest.mark.parametrize("kind", HIDDEN)
def test_no_error_prints_the_members_of_a_record(kind: str) -> None:
    """Log lines, and error formats whose text has the fields in brackets, are made of it."""
    error = ConflictError("Not now.", found=HIDDEN[kind], more={"x": [HIDDEN[kind]]})
    assert "planted" not in f"{error} {error.json_fields()}"
