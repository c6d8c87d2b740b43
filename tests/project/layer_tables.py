"""The layers of the package as tables: what each may import, and the exceptions of the rules."""

BASE = (
    "limits",
    "errors",
    "advice",
    "clock",
    "keyring",
    "normalization",
    "private_types",
    "rooted_path",
    "file_lock",
)
CORE = ("keys", "schema", "engine", "store")
SERVING = ("auth", "http", "nats", "scheduling", "search", "service", "settings")

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "": (*BASE, *CORE, "engines.registry", "opening", "remote_store", "service.registry"),
    "opening": (*BASE, *CORE, "engines.opening", "engines.registry"),
    "limits": (),
    "layout": ("errors",),
    "errors": ("limits", "private_types"),
    "advice": ("errors",),
    "clock": ("limits", "errors", "advice"),
    "keyring": ("errors", "advice"),
    "normalization": ("limits",),
    "private_types": (),
    "rooted_path": (),
    "file_lock": (),
    "keys": ("limits", "errors", "advice", "normalization"),
    "schema": ("limits", "errors", "advice", "keys", "private_types"),
    "engine": (*BASE, "keys"),
    "scheduling": ("errors",),
    "requests": ("limits", "errors", "schema"),
    "nats": (*BASE, "requests", "scheduling"),
    "engines": (
        *BASE,
        "keys.escape",
        "engine",
        "layout",
        "nats.credentials",
        "nats.client",
        "nats.errors",
        "nats.server",
    ),
    "store": (*BASE, "keys", "schema", "engine"),
    "operations": (*BASE, *CORE, "scheduling"),
    "remote_store": (*BASE, *CORE, "nats", "operations"),
    "sync": (*BASE, *CORE, "engines.registry", "opening", "remote_store"),
    "search": (*BASE, *CORE, "scheduling"),
    "settings": (*BASE, "engines", "layout", "nats.embedded_users"),
    "testing": (*BASE, *CORE, "engines", "nats"),
    "auth": (*BASE, "settings"),
    "http": (*BASE, "schema", "requests", "auth", "scheduling", "settings", ""),
    "service": (
        *BASE,
        *CORE,
        "auth",
        "http",
        "engines.wrapper",
        "layout",
        "nats",
        "operations",
        "remote_store",
        "scheduling",
        "settings",
        "",
    ),
    "studio": (*BASE, *CORE, *SERVING, ""),
    "serve": (*BASE, *CORE, *SERVING, "engines", "studio", ""),
    "systems": (*BASE, *CORE, *SERVING, "catalog", "layout", ""),
    "adapters": ("errors", "schema", "store"),
    "catalog": (*BASE, "search", "systems"),
    "bench": (*BASE, *CORE, "engines", ""),
    "cli": (
        *BASE,
        *CORE,
        *SERVING,
        "bench",
        "catalog",
        "demo",
        "engines",
        "layout",
        "serve",
        "studio",
        "systems",
        "",
    ),
    "demo": (*BASE, *CORE, "engines", "serve", ""),
}
"""Layers that each layer may import besides itself. The empty name is `keyhouse/__init__.py`."""

INSTEAD: dict[tuple[str, str], str] = {
    (
        "",
        "engines",
    ): (
        "importing keyhouse must need no driver: open engines by URL, through "
        "keyhouse.engines.registry"
    ),
    ("keys", "clock"): "take the time or the id as an argument",
    ("schema", "clock"): "take the time or the id as an argument",
    ("schema", "engine"): "return keys and values; the store makes the Batch",
    ("schema", "store"): "return keys and values; the store makes the Batch",
    ("engine", "schema"): "an engine knows rows: say it with keys, values and spans",
    (
        "engines",
        "schema",
    ): "an engine knows rows: say it with keys, values and spans of keyhouse.engine",
    ("engines", "store"): "an engine knows rows: the store calls it, never the other way",
    (
        "engines",
        "keys",
    ): "import Span and check_key from keyhouse.engine, an alphabet from keyhouse.keys.escape",
    (
        "store",
        "engines",
    ): "the store names no engine: take an Engine as an argument, and ask its capabilities",
    ("systems", "engines"): "a system names no engine: take a Store, or an Engine, as an argument",
    ("systems", "serve"): "serve runs systems: use keyhouse.service, which is below both",
}
"""Advice for a forbidden import, where there is better than the general one."""

THIRD_PARTY: dict[str, tuple[str, ...]] = {
    "msgspec": tuple(MAY_IMPORT),
    "interegular": ("keys",),
    "cryptography": ("keyring",),
    "alembic": ("engines",),
    "apsw": ("engines", "bench", "search", "catalog"),
    "asyncpg": ("engines",),
    "botocore": ("engines",),
    "rocksdict": ("engines",),
    "typer": ("cli",),
    "rich": ("cli",),
    "pytest": ("testing",),
    "aiobotocore": ("engines",),
    "httpx": ("auth", "remote_store", "service", "systems", "testing"),  # JWKS, clients
    "aiocache": ("adapters",),
    "key_value": ("adapters",),
    "langgraph": ("adapters",),
    "starsessions": ("adapters",),
    "argon2": ("service",),
    "mutagen": ("systems",),
    "httptools": ("serve",),
    "jinja2": ("http",),
    "jwt": ("auth",),
    "nats": ("nats", "engines", "remote_store", "service", "systems"),
    "opentelemetry": ("serve",),
    "prometheus_client": ("http", "nats", "search", "service", "serve", "systems"),
    "python_multipart": ("http",),
    "starlette": ("http", "serve", "systems"),
    "structlog": ("auth", "http", "nats", "search", "serve", "service", "studio", "systems", "cli"),
    "uvloop": ("serve", "cli"),
}
"""Layers that may import each library; a library that is not listed may not be imported."""

PURE = ("keys", "schema", "requests")
PURE_IMPORTS = frozenset(
    {
        "abc",
        "array",
        "base64",
        "bisect",
        "collections",
        "contextlib",
        "copy",
        "dataclasses",
        "datetime",
        "decimal",
        "difflib",
        "enum",
        "fractions",
    }
    | {
        "functools",
        "hashlib",
        "heapq",
        "hmac",
        "inspect",
        "itertools",
        "json",
        "keyword",
        "math",
        "operator",
        "re",
        "string",
    }
    | {"struct", "types", "typing", "unicodedata", "zlib"}
)
"""Standard modules without I/O, clocks or random numbers."""

IMPURE_CALLS = frozenset({"now", "utcnow", "today", "open", "print", "input", "breakpoint"})
STANDARD_DRIVERS = {
    "sqlite3": "Python's own SQLite is often old and has a WAL bug: use apsw",
    "dbm": "use an engine",
}
MEANINGLESS_NAMES = frozenset(
    {"util", "utils", "helper", "helpers", "manager", "managers", "common", "misc"}
)
PUBLIC_ONLY = ("systems", "catalog", "cli", "demo", "adapters")
"""Layers that import public names only. The examples and the programs of the documentation too."""

_PUBLIC: dict[str, tuple[str, ...]] = {
    "keyhouse": (
        *("advice", "auth", "clock", "engine", "errors", "file_lock", "http", "keyring", "keys"),
        *("layout", "limits", "normalization", "rooted_path", "schema", "search", "settings"),
        *("store", "sync"),
    ),
    "keyhouse.adapters": (
        *("aiocache_backend", "langgraph_checkpoints", "py_key_value", "starlette_sessions"),
    ),
    "keyhouse.nats": ("bus", "client", "client_connection", "embedded_users", "endpoint"),
    "keyhouse.service": (
        *("background_operations", "background_records", "background_task", "bulk_import"),
        *("errors", "event_hub", "http_client", "key_locks", "measured_routes", "metrics"),
        *("nats_acl", "nats_client", "nats_operations", "operation_log", "pages", "pages.text"),
        *("rates", "remote", "row_reads", "row_remote", "runtime", "secret_ids", "settings"),
        *("shared_task", "spec", "summed_metrics", "system", "tenants", "thread_priority"),
        *("usage", "worker"),
    ),
    "keyhouse.service.accounts": ("known_clients", "login_guard", "passwords", "sessions"),
    "keyhouse.testing": ("conformance", "linearizability", "simulation"),
}
PUBLIC_MODULES = frozenset(
    {"keyhouse", *(f"{package}.{name}" for package, names in _PUBLIC.items() for name in names)}
)
"""Modules that an application imports. Each publishes its `__all__`, or without one, all its public
names. A module is on the list while a system, an example or the documentation imports it."""

_OPERATORS: dict[str, tuple[str, ...]] = {
    "keyhouse": ("bench", "studio"),
    "keyhouse.cli": ("files", "options", "output", "target", "terminal"),
    "keyhouse.engines": ("health", "sql.migrate", "sql.url", "url"),
    "keyhouse.nats": ("connection",),
    "keyhouse.schema": (
        *("description", "diagram", "explanation", "json_schema", "keyspace_document"),
    ),
    "keyhouse.serve": ("data_dir", "listener", "process"),
    "keyhouse.service": ("blocking", "registry", "stored_row", "tokens"),
    "keyhouse.service.schema_service": ("acl", "service", "system"),
    "keyhouse.settings": ("engine_urls", "settings", "sources"),
    "keyhouse.studio": ("settings",),
}
OPERATOR_MODULES = frozenset(
    f"{package}.{name}" for package, names in _OPERATORS.items() for name in names
)
"""Modules that the command line imports besides, as do the commands of a system."""


ENGINE_CALLS = frozenset({"read", "scan", "commit", "watch", "sweep", "forget", "snapshot"})
"""The methods of an engine that read or write rows. Anyone may list its spaces, ask for its clock
and capabilities, and close what it opened."""

ENGINE_CALLERS = ("store", "engines", "testing", "bench")
"""Layers that call an engine: the store, engines and their wrappers, benchmarks and tests."""

ENGINE_CALLING_MODULES = {
    "keyhouse.serve.engine_opener": "its readiness probe",
    "keyhouse.serve.tracing": "a wrapper of an engine",
    "keyhouse.service.served_engine": "a wrapper of an engine",
}
"""Modules elsewhere that call an engine, with the reason. The list only shrinks."""

USES_PRIVATE_NAMES = {
    "keyhouse.scheduling.eager_task": "asyncio's functions for other kinds of tasks, Python 3.11",
    "keyhouse.nats.client": "the subclass of the client: tests/nats/test_private_names.py",
    "keyhouse.nats.parser": "the parser of that client: tests/nats/test_private_names.py",
}
"""Modules that use private names of a library, with the reason. The list only shrinks."""

COMPARES_NUMBERS = {"keyhouse.nats.parser": "counts the words of a line of the protocol"}
"""Modules that reject a message by its form, with a number that is not a limit."""

PUBLIC_BY_DOCUMENTATION = frozenset({"_exit", "_replace", "_asdict", "_fields"})
"""`os._exit` and the methods of a NamedTuple."""
