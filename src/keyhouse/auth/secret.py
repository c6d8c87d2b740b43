"""The secret of a service that was given none: random, in a file that only its owner can read, made once.

It is never logged, and never part of an error.
"""

import contextlib
import os
import secrets
import stat
from pathlib import Path

from keyhouse.auth.settings import check_secret
from keyhouse.errors import UsageError


def load_or_create_secret(folder: Path, system: str = "", *, make: bool = True) -> str:
    """The secret in the folder's file `<system>-jwt.secret`, made when it is not there. All who ask at once get the same.

    Each system has its own: a token of one is none of another. UsageError when others can read the file, this user can't,
    or when it is not there and `make` is false.
    """
    path = folder / (f"{system}-jwt.secret" if system else "jwt.secret")
    try:
        if not path.exists():
            if not make:
                raise UsageError(
                    "There is no secret yet: start the service once, or name its data folder.",
                    file=str(path),
                )
            _make(path)
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = file.read()
    except OSError as error:
        raise UsageError(
            "The secret that signs tokens can't be read or made: be the service's user, and name its data folder.",
            file=str(path),
            reason=error.strerror,
        ) from None
    if os.name == "posix" and mode & 0o077:
        raise UsageError(
            "Others can read the secret: make a new one, or chmod 600 it if none has.",
            file=str(path),
        )
    try:
        secret = text.decode("ascii").strip()
    except UnicodeDecodeError:
        raise UsageError(
            "The file of the secret is not text: delete it, and a new one is made.", file=str(path)
        ) from None
    check_secret(secret, file=str(path))
    return secret


def _make(path: Path) -> None:
    """Written whole under another name, then linked: nobody ever reads half a secret, and the first one stays."""
    path.parent.mkdir(
        mode=0o700, parents=True, exist_ok=True
    )  # as `keyhouse serve` does: rows will be beside it
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):  # another was faster: its secret is the one
            os.link(draft, path)
    finally:
        draft.unlink()
