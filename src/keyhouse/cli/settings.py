"""The settings of `keyhouse serve` as tables of the documentation, made from the Structs that read them."""

from typing import Any, get_args, get_origin

import msgspec

from keyhouse.http import HttpSettings
from keyhouse.settings.settings import Settings
from keyhouse.systems.registry import NAMES, has_service, load_service

_FLAGS = {"systems": "`SYSTEM…`"} | {
    name: f"`--{name.replace('_', '-')}`"
    for name in ("data", "engine", "http", "nats", "nats_port")
}
"""How the command line says what can be said there."""


def settings_tables() -> str:
    """The program's own, then the HTTP face's, then those of each system that has a service."""
    parts = [_table(Settings, "")]
    parts += ["### The table `[http]`\n", _table(HttpSettings, "http")]
    for name in NAMES:
        kind = load_service(name).settings if has_service(name) else None
        if kind is not None:
            parts += [f"### The table `[{name}]`\n", _table(kind, name)]
    return "\n".join(parts).rstrip("\n")


def _table(kind: type[msgspec.Struct], table: str) -> str:
    prefix = f"KEYHOUSE_{table.upper()}_" if table else "KEYHOUSE_"
    rows = ["| setting | environment | default | |", "|---|---|---|---|"]
    for field in msgspec.structs.fields(kind):
        flag = f", {_FLAGS[field.name]}" if field.name in _FLAGS and not table else ""
        about = _about(field.type)
        rows.append(
            f"| `{field.name}`{flag} | `{prefix}{field.name.upper()}` | {_default(field)} | {about} |"
        )
    return "\n".join(rows) + "\n"


def _about(kind: Any) -> str:
    """What is said of it, and what it may be where that is one of a few."""
    said = [
        meta.description
        for meta in getattr(kind, "__metadata__", ())
        if getattr(meta, "description", None)
    ]
    bare = getattr(kind, "__origin__", kind) if hasattr(kind, "__metadata__") else kind
    choices = " ".join(f"`{choice}`" for choice in get_args(bare)) if _is_choice(bare) else ""
    return " ".join([*said, *([f"One of {choices}."] if choices else [])])


def _is_choice(kind: Any) -> bool:
    return str(get_origin(kind)) == "typing.Literal"


def _default(field: Any) -> str:
    default = field.default
    if default in (None, (), "", msgspec.NODEFAULT):
        return ""
    if isinstance(default, tuple):
        return " ".join(f"`{each}`" for each in default)
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"
