"""Errors of a NATS connection, for the engine, the service and the command line."""

from nats.errors import Error

from keyhouse.errors import UnavailableError
from keyhouse.nats.driver import unfit


def is_refusal(error: Exception) -> bool:
    """Whether it is what the server said, before it closed the connection: the driver's plain error, and no other."""
    return type(error) is Error


def is_hopeless(error: Exception) -> bool:
    """Whether to ask again would change nothing."""
    return is_refusal(error) or unfit(error) is not None


def unreachable(server: str, cause: Exception) -> UnavailableError:
    if is_refusal(cause):
        sentence = "The NATS server refuses the connection; look at the user, the password or the credentials in the URL."
    else:
        sentence = unfit(cause) or (
            "The NATS server can't be reached; see that it runs, and look at host and port in the URL."
        )
    return UnavailableError(sentence, server=server, detail=str(cause)).caused_by(cause)
