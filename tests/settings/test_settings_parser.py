"""Parsing a table of settings: types of values, and invalid ones."""

from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, Struct

from keyhouse.errors import UsageError
from keyhouse.http.settings import HttpSettings
from keyhouse.settings import read_settings, setting
from keyhouse.settings.parser import unknown_setting


class Quota(Struct):
    keys: int


class Shop(Struct, kw_only=True, frozen=True):
    port: Annotated[int, setting("Where it listens."), Meta(ge=0, le=65_535)] = 80
    names: Annotated[tuple[str, ...], setting("Who may come in.")] = ()
    open: Annotated[bool, setting("Whether it is open.")] = True
    sort: Annotated[Literal["books", "tea"], setting("What it sells.")] = "tea"
    quota: Annotated[Quota | None, setting("How much of it.")] = None
    owner: Annotated[str | None, setting("Whose it is.")] = None
    key: Annotated[str, setting("What opens it.", secret=True)] = ""


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({}, Shop()),
        ({"port": "8080"}, Shop(port=8080)),
        ({"open": "false"}, Shop(open=False)),
        ({"names": "ann, bob"}, Shop(names=("ann", "bob"))),
        ({"names": '["ann","bob"]'}, Shop(names=("ann", "bob"))),
        ({"names": ["ann"]}, Shop(names=("ann",))),
        ({"quota": '{"keys": 3}'}, Shop(quota=Quota(3))),
        ({"owner": "[ann]"}, Shop(owner="[ann]")),
        ({"key": "1234"}, Shop(key="1234")),
    ],
)
def test_text_from_the_environment_is_read_as_the_fields_type(
    given: dict[str, Any], made: Shop
) -> None:
    assert read_settings(Shop, given) == made


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({"prot": 1}, {"setting": "shop.prot", "nearest": "shop.port"}),
        ({"port": 70_000}, {"setting": "shop.port", "reason": "Expected `int` <= 65535"}),
        ({"port": "many"}, {"setting": "shop.port", "reason": "Expected `int`, got `str`"}),
        (
            {"sort": "coal"},
            {
                "setting": "shop.sort",
                "reason": "Invalid enum value 'coal'",
                "value": "coal",
                "known": ["books", "tea"],
            },
        ),
        (
            {"quota": {"keys": "x"}},
            {"setting": "shop.quota.keys", "reason": "Expected `int`, got `str`"},
        ),
        (
            {"quota": "{"},
            {"setting": "shop.quota", "reason": "Expected `object | null`, got `str`"},
        ),
    ],
)
def test_an_invalid_value_is_rejected_by_name(
    given: dict[str, Any], fields: dict[str, object]
) -> None:
    with pytest.raises(UsageError) as refused:
        read_settings(Shop, given, table="shop")
    assert refused.value.fields == fields


def test_a_name_without_a_near_match_is_rejected_with_all_names() -> None:
    with pytest.raises(UsageError) as refused:
        read_settings(Shop, {"zzzzzz": 1})
    assert refused.value.fields["known"] == [
        "key",
        "names",
        "open",
        "owner",
        "port",
        "quota",
        "sort",
    ]


@pytest.mark.parametrize(
    ("table", "name", "nearest"),
    [
        ("http", "lisen", "http.listen"),
        ("http", "slow_second", "http.slow_seconds"),
        ("history", "engin", "history.engine"),
    ],
)
def test_the_nearest_name_is_by_the_setting_and_not_its_table(
    table: str, name: str, nearest: str
) -> None:
    """All settings of a table were similar by its name: `http.lisen` suggested another setting."""
    with pytest.raises(UsageError) as unknown:
        read_settings(HttpSettings, {name: 1}, table=table)
    assert unknown.value.fields["nearest"] == nearest


def test_a_name_like_no_other_is_answered_with_all_names() -> None:
    error = unknown_setting("KEYHOUSE_LISTEN", ["KEYHOUSE_PLAYLIST", "KEYHOUSE_HTTP"])
    assert "nearest" not in error.fields
    assert error.fields["known"] == ["KEYHOUSE_HTTP", "KEYHOUSE_PLAYLIST"]
