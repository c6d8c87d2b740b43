"""The rows of the Studio itself: sessions and links of operators, the journal, jobs."""

from typing import Final

import msgspec

from keyhouse.schema import Record, Schema, Space, per_write
from keyhouse.service.background_records import DefaultOperationRecords

SPACE: Final = "studio"


class Session(msgspec.Struct, kw_only=True):
    """A signed-in operator. Only the hash of the cookie's secret is stored. Times are in
    milliseconds since 1970."""

    id: str
    operator: str
    scopes: list[str]
    secret_hash: str
    created: int
    expires: int
    is_unlocked: bool = False


class SignInLink(msgspec.Struct, kw_only=True):
    """A one-time link that any process accepts. Only the hash of its code is stored."""

    code_hash: str
    scopes: list[str]


class JournalLine(msgspec.Struct, kw_only=True):
    """Something that an operator did. `job` is the id of the job that it started or cancelled, or
    that made the change. `before` and `after` are the stored values of the record;
    `expires_before` is the expiry that it had."""

    id: str = ""
    at: int
    operator: str
    action: str
    system: str = ""
    space: str = ""
    key: str = ""
    detail: str = ""
    job: str = ""
    revision_before: int | None = None
    expires_before: int | None = None
    revision: int | None = None
    before: str | None = None
    after: str | None = None


SESSION: Final = Record(
    Session, "session:{id}", name="session", private=("secret_hash",), expiry=per_write()
)
LINK: Final = Record(SignInLink, "link:{code_hash}", name="link", expiry=per_write())
JOURNAL: Final = Record(JournalLine, "journal:{id:ulid}", name="journal")
OPERATIONS: Final = DefaultOperationRecords()
SCHEMA: Final = Schema(
    "studio",
    SESSION,
    LINK,
    JOURNAL,
    *OPERATIONS.records,
    space=Space("all operators", name=SPACE),
    doc="Sessions, sign-in links, journal and jobs of the Studio.",
)
