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


OPERATIONS: list[Any] = [show_one, show_all, lock_out, pay, be_strict, be_local]
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
