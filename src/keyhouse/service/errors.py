"""Errors of services over NATS, and of typed clients: one base, and the map from a reply to an
exception class.

A client declares its tree once. Each class lists the `codes` or HTTP `statuses` it stands for, and
the KeyhouseError that commands raise in its place (`local`):

    class Conflict(PluginError):
        codes = ("CONFLICT",)
        local = RevisionError
"""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from keyhouse.errors import CallerError, DataError, KeyhouseError

__all__ = ["ClientError", "ErrorMap", "SubjectError"]


class SubjectError(CallerError):
    """An invalid NATS subject: of a request, of its reply, or one that changes must not be
    published to."""

    code = "INVALID_SUBJECT"


class ClientError(Exception):
    """A request that a service rejected or failed. `code` and `status` are for programs, `message`
    for people.

    `fields` are the values that the message speaks of; `retry_after` is in seconds; `request_id`
    finds it in the log.
    """

    codes: ClassVar[tuple[str, ...]] = ()
    statuses: ClassVar[tuple[int, ...]] = ()
    local: ClassVar[type[KeyhouseError]] = DataError

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        status: int = 0,
        fields: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
        request_id: str = "",
    ) -> None:
        self.code = code
        self.status = status
        self.message = message
        self.fields = dict(fields or {})
        self.retry_after = retry_after
        self.request_id = request_id
        details = ", ".join(f"{name}={value!r}" for name, value in self.fields.items())
        label = code or str(status)
        super().__init__(f"{label}: {message}" + (f" ({details})" if details else ""))

    def to_local(self, **fields: Any) -> KeyhouseError:
        """Return the KeyhouseError that a command raises for this one."""
        reason = self.message
        if "reason" in self.fields:
            reason += f" {self.fields['reason']}"
        given = self.fields | ({"status": self.status} if self.status else {"code": self.code})
        return self.local(
            "The service rejected the request.", **given | fields | {"reason": reason}
        )


E = TypeVar("E", bound=ClientError)


class ErrorMap(Generic[E]):
    """Finds the class of an error by its code, else by its status; `other` for any that is not
    listed."""

    def __init__(self, other: type[E], *classes: type[E]) -> None:
        self._other = other
        self._by_code = {code: each for each in classes for code in each.codes}
        self._by_status = {status: each for each in classes for status in each.statuses}

    @property
    def codes(self) -> Collection[str]:
        return self._by_code.keys()

    def find(self, *, code: str = "", status: int = 0) -> type[E]:
        """Any status from 500 up is mapped as 500."""
        return (
            self._by_code.get(code)
            or self._by_status.get(status)
            or (self._by_status.get(500) if status >= 500 else None)
            or self._other
        )
