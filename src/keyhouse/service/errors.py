"""Errors of services over NATS."""

from keyhouse.errors import CallerError

__all__ = ["SubjectError"]


class SubjectError(CallerError):
    """An invalid NATS subject: of a request, of its reply, or one that changes must not be
    published to."""

    code = "INVALID_SUBJECT"
