"""Users of the embedded nats-server. Two accounts separate them; accounts share no subject.

| account | user | who | reaches |
|---|---|---|---|
| `keyhouse` | `keyhouse` | the service | all of the account: JetStream, buckets, the bus |
| | others | who needs buckets, by `keyhouse nats-user` | the same |
| `plugins` | `service` | listeners of public endpoints | all of the account |
| | `plugin` | everybody else | requests to public endpoints, and inboxes |

A client without a password is `plugin`, unless a password is required (`nats_auth`). It cannot
subscribe to requests, so it neither reads nor answers those of others. The passwords of the first
three are new at each start. They are in the server's configuration, which only the user that runs
it can read: programs of that user find them there (`embedded_url`). Users made by a command keep
their password, in a file beside it.
"""

import json
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from keyhouse.advice.nearest import nearest
from keyhouse.errors import UsageError

__all__ = [
    "BUCKETS_USER",
    "CLIENT_USER",
    "LISTENER_USER",
    "EmbeddedUsers",
    "add_user",
    "embedded_url",
    "remove_user",
    "requires_password",
    "with_embedded_user",
]

BUCKETS_USER: Final = "keyhouse"
LISTENER_USER: Final = "service"
CLIENT_USER: Final = "plugin"
_RESERVED: Final = (BUCKETS_USER, LISTENER_USER, CLIENT_USER)

_CONFIGURATION: Final = Path("nats", "nats-server.json")
_USERS: Final = Path("nats", "users.json")
"""Files in the data folder: the configuration of the server, and the users made by a command."""

DATA_VARIABLE: Final = "KEYHOUSE_DATA"
DATA_DEFAULT: Final = "keyhouse-data"

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DISCOVERY: Final = "$SRV.>"


class EmbeddedUsers:
    """The users of one server in a data folder, and what they may do. `subjects` are those of the
    public endpoints."""

    def __init__(self, data: Path, *, require_password: bool = False) -> None:
        self._file = data / _USERS
        self._require_password = require_password
        self._passwords = {user: secrets.token_hex(16) for user in _RESERVED}
        self._stamp = self._changed_at()
        self.subjects: Iterable[str] = ()

    def authority(self, user: str) -> str:
        """Return `user:password@`, for a URL."""
        return f"{user}:{self._passwords[user]}@"

    def has_changed(self) -> bool:
        """Return whether a command has changed the users since the last call."""
        stamp, self._stamp = self._stamp, self._changed_at()
        return stamp != self._stamp

    def configuration(self, *, jetstream: bool, mappings: Mapping[str, str]) -> dict[str, Any]:
        """Return the part of the server's configuration that defines accounts and users."""
        subjects = [_DISCOVERY, *self.subjects]
        permissions = {"publish": {"allow": subjects}, "subscribe": {"deny": subjects}}
        keyhouse: dict[str, Any] = {
            "users": [self._user(BUCKETS_USER), *_users(read_users(self._file))]
        }
        plugins: dict[str, Any] = {
            "users": [
                self._user(LISTENER_USER),
                self._user(CLIENT_USER) | {"permissions": permissions},
            ]
        }
        if jetstream:
            keyhouse["jetstream"] = "enabled"
        if mappings:
            plugins["mappings"] = dict(mappings)
        accounts = {"accounts": {"keyhouse": keyhouse, "plugins": plugins}}
        return accounts if self._require_password else accounts | {"no_auth_user": CLIENT_USER}

    def _user(self, name: str) -> dict[str, Any]:
        return {"user": name, "password": self._passwords[name]}

    def _changed_at(self) -> tuple[int, int] | None:
        with suppress(OSError):
            status = self._file.stat()
            return status.st_mtime_ns, status.st_ino
        return None


def add_user(data: Path, name: str) -> str:
    """Return the password of a user for the buckets, which is made unless it exists. A running
    server has the user a moment later."""
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise UsageError(
            "A user's name is 1 to 64 letters, digits, - and _, and none of the service's own.",
            user=name,
            reserved=list(_RESERVED),
        )
    users = read_users(data / _USERS)
    if name not in users:
        users[name] = secrets.token_urlsafe(24)
        _write_users(data / _USERS, users)
    return users[name]


def remove_user(data: Path, name: str) -> None:
    """Remove a user. A running server disconnects it a moment later."""
    users = read_users(data / _USERS)
    if users.pop(name, None) is None:
        raise UsageError("There is no such user.", user=name, **nearest(name, sorted(users)))
    _write_users(data / _USERS, users)


def read_users(file: Path) -> dict[str, str]:
    try:
        users = msgspec.json.decode(file.read_bytes(), type=dict[str, str])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(
            "The file of NATS users cannot be read: correct it, or delete it and add them again.",
            file=str(file),
            reason=str(error),
        ) from None
    return users


def _write_users(file: Path, users: Mapping[str, str]) -> None:
    """Replace the file, for its owner only."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
        json.dump(users, opened)
    new.replace(file)


def _users(users: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"user": name, "password": password} for name, password in users.items()]


def embedded_url(data: Path | None = None, user: str = CLIENT_USER) -> str | None:
    """Return the URL of the embedded server of a data folder, with a user and its password; None if
    none has run there, or if this user may not read its configuration.

    The data folder is by default that of `KEYHOUSE_DATA`, or `keyhouse-data`.
    """
    try:
        configuration = _configuration(data)
        passwords = {
            each["user"]: each["password"]
            for account in configuration["accounts"].values()
            for each in account["users"]
        }
        return f"nats://{user}:{passwords[user]}@127.0.0.1:{int(configuration['port'])}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def requires_password(data: Path | None = None) -> bool:
    """Return whether the embedded server of a data folder rejects clients without a password."""
    return "no_auth_user" not in _configuration(data)


def _configuration(data: Path | None) -> dict[str, Any]:
    folder = data or Path(os.environ.get(DATA_VARIABLE) or DATA_DEFAULT)
    configuration: dict[str, Any] = json.loads((folder / _CONFIGURATION).read_text())
    return configuration


def with_embedded_user(url: str, data: Path | None = None, user: str = CLIENT_USER) -> str:
    """Return the URL with a user and password of the embedded server, if it is that server's and
    names no user."""
    address = re.fullmatch(r"(?:nats://)?(?:127\.0\.0\.1|localhost):(\d+)(/.*)?", url)
    embedded = None if address is None else embedded_url(data, user)
    if address is None or embedded is None or not embedded.endswith(f":{address[1]}"):
        return url
    return embedded + (address[2] or "").removesuffix("/")
