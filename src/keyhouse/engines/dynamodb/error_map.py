"""Maps botocore errors to Keyhouse errors. No other module inspects the driver's errors."""

from enum import Enum, auto
from typing import Any, Final, NamedTuple

from botocore import exceptions as driver

from keyhouse.errors import (
    EngineError,
    FullError,
    KeyhouseError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
)


class Failure(Enum):
    """Kinds of failed requests: what was done, and whether to retry."""

    CONDITION_FAILED = auto()  # nothing was done
    BUSY = auto()  # throttled or in conflict; nothing was done, retry
    NOT_CONNECTED = auto()  # nothing was sent, retry
    UNKNOWN = auto()  # sent but not answered: it may have been done
    REJECTED = auto()  # nothing was done; a retry does not help


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
_UNKNOWN_CODES: Final = {
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


class _Rule(NamedTuple):
    error_type: type[KeyhouseError]
    message: str


_UNREACHABLE: Final = _Rule(
    UnavailableError, "DynamoDB cannot be reached; check the endpoint and the network."
)
_THROTTLED: Final = _Rule(
    UnavailableError, "DynamoDB kept rejecting the request because it is too busy; try later."
)
_DENIED: Final = _Rule(
    UnavailableError,
    "DynamoDB rejects the credentials; check them and their permissions.",
)
_FULL: Final = _Rule(
    FullError, "The space has reached the size limit of a table with local secondary indexes."
)
_ABSENT: Final = _Rule(
    UsageError, "The table does not exist; create it, or open the engine with create=true."
)
_UNKNOWN: Final = _Rule(EngineError, "The driver raised an unknown error.")

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
    **dict.fromkeys(_UNKNOWN_CODES, _UNREACHABLE),
}


def classify(error: Exception) -> Failure:
    if isinstance(error, driver.ClientError):
        return _classify_response(error)
    if isinstance(error, driver.ConnectionError):  # never connected; a broken one differs
        return Failure.NOT_CONNECTED
    return Failure.REJECTED if isinstance(error, _NOT_SENT) else Failure.UNKNOWN


def is_absent(error: Exception) -> bool:
    return isinstance(error, driver.ClientError) and _code(error) == "ResourceNotFoundException"


def is_already_created(error: Exception) -> bool:
    return isinstance(error, driver.ClientError) and _code(error) == "ResourceInUseException"


def translate(error: Exception, table: str) -> KeyhouseError:
    """Return the error to raise for a driver error. Nothing was written."""
    if isinstance(error, driver.ClientError):
        reasons = [reason for reason in _reasons(error) if reason in _BY_CODE]
        rule = _BY_CODE.get(reasons[0] if reasons else _code(error), _UNKNOWN)
    elif isinstance(
        error,
        driver.NoCredentialsError
        | driver.PartialCredentialsError
        | driver.CredentialRetrievalError,
    ):
        rule = _DENIED
    elif isinstance(error, driver.NoRegionError):
        rule = _Rule(
            UsageError, "DynamoDB needs a region; set it in the URL, or in AWS_DEFAULT_REGION."
        )
    elif isinstance(error, driver.HTTPClientError | driver.ConnectionError):
        rule = _UNREACHABLE
    else:
        rule = _UNKNOWN
    return rule.error_type(rule.message, table=table, detail=str(error)).caused_by(error)


def invalid_address(error: ValueError, table: str) -> KeyhouseError:
    """Return the error for a region or endpoint that the driver rejects."""
    message = (
        "Invalid region or endpoint; check the URL, or AWS_DEFAULT_REGION and AWS_ENDPOINT_URL."
    )
    return UsageError(message, table=table, detail=str(error)).caused_by(error)


def unknown_outcome(error: Exception, table: str) -> KeyhouseError:
    message = "The transaction was sent but not confirmed; repeat it with the same batch id."
    return UnknownOutcomeError(message, table=table, detail=str(error)).caused_by(error)


def _classify_response(error: Any) -> Failure:
    code = _code(error)
    if code == "TransactionCanceledException":
        reasons = set(_reasons(error))
        if _CONDITION in reasons:
            return Failure.CONDITION_FAILED
        return Failure.BUSY if reasons & _BUSY_REASONS else Failure.REJECTED
    if code == "ConditionalCheckFailedException":
        return Failure.CONDITION_FAILED
    if code in _BUSY_CODES:
        return Failure.BUSY
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return Failure.UNKNOWN if code in _UNKNOWN_CODES or status >= 500 else Failure.REJECTED


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _reasons(error: Any) -> list[str]:
    return [
        str(reason.get("Code", "None")) for reason in error.response.get("CancellationReasons", ())
    ]
