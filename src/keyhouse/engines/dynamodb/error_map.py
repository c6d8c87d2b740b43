"""What the driver raises, as what the engine raises. The only place that chooses an error by the driver's."""

from enum import Enum, auto
from typing import Any, Final, NamedTuple

from botocore import exceptions as driver

from keyhouse.errors import (
    ClosedError,
    EngineError,
    FullError,
    KeyhouseError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
)


class Verdict(Enum):
    """What is known after a failed request."""

    LOST = auto()  # a condition did not hold; nothing was done
    BUSY = auto()  # throttled, or in the way of another transaction; nothing was done, and it may be asked again
    UNREACHED = auto()  # no connection, in time: nothing was sent, and it may be asked again
    UNSURE = auto()  # sent, and not answered: it may have been done
    FAILED = auto()  # nothing was done, and asking again does not help now


_CONDITION: Final = "ConditionalCheckFailed"
_BUSY_REASONS: Final = {
    "TransactionConflict",
    "ProvisionedThroughputExceeded",
    "ThrottlingError",
    "RequestLimitExceeded",
}
_BUSY_CODES: Final = {
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
    "ThrottledException",
    "TransactionConflictException",
    "TransactionInProgressException",
    "LimitExceededException",
}
_UNSURE_CODES: Final = {
    "InternalServerError",
    "InternalFailure",
    "ServiceUnavailable",
    "500",
    "502",
    "503",
    "504",
}
_CREDENTIALS: Final = (
    driver.NoCredentialsError,
    driver.PartialCredentialsError,
    driver.CredentialRetrievalError,
)
_NOT_SENT: Final = (
    driver.NoRegionError,
    driver.ParamValidationError,
    *_CREDENTIALS,
)


class _Fault(NamedTuple):
    meaning: type[KeyhouseError]
    sentence: str


_UNREACHABLE: Final = _Fault(
    UnavailableError, "DynamoDB can't be reached; look at the endpoint and the network."
)
_THROTTLED: Final = _Fault(
    UnavailableError, "DynamoDB refused the request for being too busy, again and again; try later."
)
_DENIED: Final = _Fault(
    UnavailableError,
    "DynamoDB does not accept these credentials; look at them and at their rights.",
)
_FULL: Final = _Fault(
    FullError, "The space has reached the size that a table with local secondary indexes can hold."
)
_ABSENT: Final = _Fault(
    UsageError, "The table is not there; make it, or open the engine with create=true."
)
_UNKNOWN: Final = _Fault(EngineError, "The engine failed in a way that it does not know.")

_BY_CODE: Final = {
    "AccessDeniedException": _DENIED,
    "ExpiredTokenException": _DENIED,
    "InvalidSignatureException": _DENIED,
    "MissingAuthenticationTokenException": _DENIED,
    "UnrecognizedClientException": _DENIED,
    "ItemCollectionSizeLimitExceededException": _FULL,
    "ItemCollectionSizeLimitExceeded": _FULL,
    "ResourceNotFoundException": _ABSENT,
    **dict.fromkeys(_BUSY_CODES | _BUSY_REASONS, _THROTTLED),
    **dict.fromkeys(_UNSURE_CODES, _UNREACHABLE),
}


def verdict(error: Exception) -> Verdict:
    if isinstance(error, driver.ClientError):
        return _verdict_of_answer(error)
    if isinstance(
        error, driver.ConnectionError
    ):  # there was none; one that breaks is another error
        return Verdict.UNREACHED
    return Verdict.FAILED if isinstance(error, _NOT_SENT) else Verdict.UNSURE


def is_absent(error: Exception) -> bool:
    return isinstance(error, driver.ClientError) and _code(error) == "ResourceNotFoundException"


def is_made_by_another(error: Exception) -> bool:
    return isinstance(error, driver.ClientError) and _code(error) == "ResourceInUseException"


def translated(error: Exception, table: str) -> KeyhouseError:
    """The error to raise for the driver's, when nothing was written: what happened, what to do, and to which table."""
    if isinstance(error, driver.ClientError):
        reasons = [reason for reason in _reasons(error) if reason in _BY_CODE]
        fault = _BY_CODE.get(reasons[0] if reasons else _code(error), _UNKNOWN)
    elif isinstance(
        error,
        driver.NoCredentialsError
        | driver.PartialCredentialsError
        | driver.CredentialRetrievalError,
    ):
        fault = _DENIED
    elif isinstance(error, driver.NoRegionError):
        fault = _Fault(UsageError, "DynamoDB needs a region: in the URL, or in AWS_DEFAULT_REGION.")
    elif isinstance(error, driver.HTTPClientError | driver.ConnectionError):
        fault = _UNREACHABLE
    else:
        fault = _UNKNOWN
    return fault.meaning(fault.sentence, table=table, detail=str(error)).caused_by(error)


def is_of_all(error: Exception) -> bool:
    """Whether no one batch of a transaction is to blame for it."""
    return isinstance(
        error, (ClosedError, FullError, UnavailableError, UnknownOutcomeError, UsageError)
    )


def nowhere(error: ValueError, table: str) -> KeyhouseError:
    """The driver takes neither, and does not say where it has them from."""
    sentence = "The region or the endpoint is none; look at the URL, or at AWS_DEFAULT_REGION and AWS_ENDPOINT_URL."
    return UsageError(sentence, table=table, detail=str(error)).caused_by(error)


def unknown_outcome(error: Exception, table: str) -> KeyhouseError:
    sentence = "The transaction was sent and not confirmed; repeat it with the same batch id."
    return UnknownOutcomeError(sentence, table=table, detail=str(error)).caused_by(error)


def _verdict_of_answer(error: Any) -> Verdict:
    code = _code(error)
    if code == "TransactionCanceledException":
        reasons = set(_reasons(error))
        if _CONDITION in reasons:
            return Verdict.LOST
        return Verdict.BUSY if reasons & _BUSY_REASONS else Verdict.FAILED
    if code == "ConditionalCheckFailedException":
        return Verdict.LOST
    if code in _BUSY_CODES:
        return Verdict.BUSY
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return Verdict.UNSURE if code in _UNSURE_CODES or status >= 500 else Verdict.FAILED


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _reasons(error: Any) -> list[str]:
    return [
        str(reason.get("Code", "None")) for reason in error.response.get("CancellationReasons", ())
    ]
