"""Rows of the route table: every path is below `/api/v1`, and documented with its errors."""

import hashlib
import re
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from keyhouse.http import Conditions, Response, RouteGroup
from keyhouse_audiobooks import SYSTEM
from keyhouse_audiobooks.messages import Data

__all__ = ["API", "api", "api_url", "revision_check", "tagged"]

API: Final = "/api/v1"
api: Final = RouteGroup(API, tag=None)
"""The API: its routes are grouped by their first segment in the document."""

T = TypeVar("T")
_SHOWN_TAG: Final = re.compile(r'"(\d+)-[0-9a-f]+"')
_encode = msgspec.json.Encoder().encode


def api_url(root: str, path: str) -> str:
    """Return the URL of a path of the API; `root` is the path that a proxy removes."""
    return f"{root}/{SYSTEM.name}{API}/{path}"


def tagged(shown: T, revision: int, status: int = 200) -> Response[Data[T]]:
    """Return a record with its ETag: the revision, and a hash of all that is shown, since names and
    counts of other records are part of it. A client that has both the same gets 304."""
    digest = hashlib.blake2b(_encode(shown), digest_size=6).hexdigest()
    return Response(Data(shown), status, etag=f'"{revision}-{digest}"')


def revision_check(conditions: Conditions) -> Callable[[int | None], None]:
    """Return the check of a write: only the revision of an ETag counts, or a revision alone."""

    def revisions(tags: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if tags is None else tuple(_SHOWN_TAG.sub(r'"\1"', tag) for tag in tags)

    return Conditions(revisions(conditions.if_match), revisions(conditions.if_none_match)).check
