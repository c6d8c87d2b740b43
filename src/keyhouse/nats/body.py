"""Bodies of requests: JSON that is decoded into a type, and said no to by the type of what is wrong with it.

A required field is declared with `UNSET` for its default and named in `Body(required=…)`: so that a missing field is told
from a wrong one by what it is, not by the words of a message.
"""

import json
from typing import Final, Generic, NoReturn, TypeVar

import msgspec
from msgspec import UNSET

from keyhouse.errors import DocumentError, MalformedError, MissingFieldError, RecordError
from keyhouse.schema.document import check_text

T = TypeVar("T", bound=msgspec.Struct)

_EMPTY: Final = b"{}"


class Body(Generic[T]):
    """`levels` is how deep in the body a value of the caller's own begins: so much deeper the body may be than a document.

    An empty message is an empty object, so that `nats req SUBJECT ''` asks for what needs no fields.
    """

    __slots__ = ("_decode", "_levels", "_required")

    def __init__(self, type: type[T], *, required: tuple[str, ...] = (), levels: int = 1) -> None:
        self._decode = msgspec.json.Decoder(type).decode
        self._required = required
        self._levels = levels

    def read(self, data: bytes) -> T:
        """The body; MalformedError, MissingFieldError, RecordError or DocumentError when it is none."""
        check_text(data, beneath=self._levels)
        try:
            body = self._decode(data or _EMPTY)
        except msgspec.ValidationError as error:
            raise RecordError("A field of the request can't be that.", reason=str(error)) from None
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError) as error:
            _refuse(data, error)
        for name in self._required:
            if getattr(body, name) is UNSET:
                raise MissingFieldError("Missing required field.", field=name)
        return body


def _refuse(data: bytes, error: Exception) -> NoReturn:
    """Say whether it is no JSON at all, or JSON but for something that Python writes and JSON does not have."""
    try:
        read = json.loads(data.decode(), parse_constant=_not_finite)
        json.dumps(read, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise DocumentError("A text in the document holds a lone surrogate.") from None
    except (ValueError, RecursionError):
        raise MalformedError("The request is not JSON in UTF-8.", reason=str(error)) from None
    raise DocumentError("A number in the document is not finite.", reason=str(error))


def _not_finite(name: str) -> NoReturn:
    raise DocumentError("A number in the document is not finite.", value=name)
