"""Each setting of each table, misspelled: an error that names the right one."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from keyhouse.errors import UsageError
from keyhouse.http.settings import HttpSettings
from keyhouse.service.registry import has_service, load_service, system_names
from keyhouse.service.schema_service.settings import SchemaSettings
from keyhouse.settings import read_settings
from keyhouse.settings.settings import ServerSettings
from keyhouse.studio.settings import StudioSettings

TABLES: dict[str, type[msgspec.Struct]] = {
    "": ServerSettings,
    "http": HttpSettings,
    "studio": StudioSettings,
    "recipes": SchemaSettings,
    **{name: load_service(name).settings for name in system_names() if has_service(name)},
}


def misspelled(name: str) -> str:
    """Return the name with two neighbouring letters exchanged."""
    at = next(at for at in range(len(name) - 1) if name[at] != name[at + 1])
    return name[:at] + name[at + 1] + name[at] + name[at + 2 :]


def _within(info: inspect.Type, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path of each object within a type, and the name of each of its members."""
    if isinstance(info, inspect.Metadata):
        yield from _within(info.type, path)
    elif isinstance(info, inspect.UnionType):
        for each in info.types:
            yield from _within(each, path)
    elif isinstance(info, inspect.DictType):
        yield from _within(info.value_type, (*path, "some"))
    elif isinstance(info, inspect.StructType):
        for field in info.fields:
            yield path, field.encode_name
            yield from _within(field.type, (*path, field.encode_name))


SETTINGS = [
    (table, path, name)
    for table, kind in TABLES.items()
    for path, name in _within(inspect.type_info(kind), ())
    if len(set(name)) > 1
]


@pytest.mark.parametrize(("table", "path", "name"), SETTINGS)
def test_a_misspelled_setting_is_rejected_with_the_nearest(
    table: str, path: tuple[str, ...], name: str
) -> None:
    """Within a table of a table, as `[recipes.records.secret]`, there was no nearest."""
    given: Any = {misspelled(name): True}
    for part in reversed(path):
        given = {part: given}
    with pytest.raises(UsageError, match="Unknown setting") as raised:
        read_settings(TABLES[table], given, table=table)
    place = [each for each in (table, *path) if each]
    assert raised.value.fields["setting"] == ".".join([*place, misspelled(name)])
    assert raised.value.fields["nearest"] == ".".join([*place, name])


def test_tables_within_tables_are_covered() -> None:
    assert ("recipes", ("records", "some"), "http") in SETTINGS


@pytest.mark.parametrize("name", [each.name for each in msgspec.structs.fields(SchemaSettings)])
def test_the_error_of_a_setting_of_a_schema_outside_its_table_names_the_table(name: str) -> None:
    """`quota_keys = 5` at the top of `keyhouse.toml` listed twenty names, and not this one."""
    with pytest.raises(UsageError, match="Unknown setting") as rejected:
        read_settings(ServerSettings, {name: 1})
    assert "nearest" in rejected.value.fields or "in the table with its name" in str(rejected.value)
