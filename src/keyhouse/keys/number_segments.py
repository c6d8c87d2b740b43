"""Key fields whose texts all have the same length: numbers, days, times, and their reverse order.

Text order is value order, so a range of values is a range of keys.
"""

from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact

from keyhouse.advice.arguments import checked
from keyhouse.errors import DeclarationError
from keyhouse.keys.segment import Segment

_DIGITS_MAX = 100
"""Digits of a number in a key: short enough to be printed in an error."""


class Integer(Segment):
    """A whole number from 0, padded with zeros so that it sorts as a number."""

    takes = (int,)
    length: int
    is_digits = True
    holds = "{{{name}:…d}} holds a whole number"

    @checked(DeclarationError)
    def __init__(self, width: int) -> None:
        if not 1 <= width <= _DIGITS_MAX:
            raise DeclarationError("A number has 1 to 100 digits.", width=width)
        self.length = width
        self.description = f"a whole number in {width} digits"
        self._stop = 10**width
        self.pattern = f"[0-9]{{{width}}}"

    def format(self, value: object) -> str:
        if type(value) is not int:
            raise ValueError("must be a whole number")
        if not 0 <= value < self._stop:
            raise ValueError(f"must be from 0 to {self._stop - 1}")
        return str(value).zfill(self.length)

    def parse(self, text: str) -> int:
        return int(text)

    def from_text(self, text: str) -> int:
        if not text.isascii() or not text.isdecimal() or len(text) > _DIGITS_MAX:
            raise ValueError
        return int(text)


_FLOAT_DIGITS = 15
"""Decimal digits that a float represents exactly."""

_EXACT = Context(prec=50, traps=[Inexact])
"""Arithmetic that raises instead of rounding; precise enough for every number in range."""


class FixedPoint(Segment):
    """A number with a few decimals, scaled by a power of ten and padded: 1.5 is `0000001500`.

    It parses to a float where it has decimals, so it has no more digits than a float represents.
    """

    takes = (int, float)
    length: int
    is_digits = True
    holds = "{{{name}}} of this form holds a number"

    @checked(DeclarationError)
    def __init__(self, width: int, decimals: int) -> None:
        if width > _FLOAT_DIGITS:
            raise DeclarationError("A number with decimals has at most 15 digits.", width=width)
        if not 0 <= decimals <= width:
            raise DeclarationError(
                "A number cannot have more decimals than digits.", decimals=decimals, width=width
            )
        self._whole = Integer(width)
        self.length = width
        self._decimals = decimals
        self._whole_stop = 10 ** (width - decimals)
        self._stop = Decimal(self._whole_stop)
        self._least = Decimal(1).scaleb(-decimals)
        self.description = f"a number in {width} digits, the last {decimals} of them decimals"
        self._scale: int = 10**decimals
        self.pattern = self._whole.pattern

    def format(self, value: object) -> str:
        if type(value) is int and 0 <= value < self._whole_stop:
            return str(value * self._scale).zfill(self.length)
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
            raise ValueError("must be a number")
        number = Decimal(str(value)) if isinstance(value, float) else Decimal(value)
        if not number.is_finite():
            raise ValueError("must be a finite number")
        if not 0 <= number < self._stop:
            raise ValueError(f"must be at least 0 and less than {self._stop}")
        try:
            exact = number.quantize(self._least, context=_EXACT)
        except Inexact:
            most = self._decimals
            raise ValueError(
                f"must have at most {most} decimals: write round(number, {most})"
            ) from None
        return self._whole.format(int(exact * self._scale))

    def parse(self, text: str) -> int | float:
        whole, rest = divmod(int(text), self._scale)
        return whole if not rest else int(text) / self._scale

    def from_text(self, text: str) -> int | float:
        return self._whole.from_text(text) if text.isdecimal() else float(text)


class Day(Segment):
    """A calendar day, `2026-01-18`."""

    pattern = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
    description = "a day"
    length = 10
    takes = (date,)
    is_plain_json = False
    holds = "{{{name}:date}} holds a date"

    def format(self, value: object) -> str:
        if type(value) is not date:
            raise ValueError("must be a datetime.date")
        return value.isoformat()

    def parse(self, text: str) -> date:
        return date.fromisoformat(text)

    from_text = parse


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_TIME_DIGITS = 13
"""Digits of milliseconds since 1970: up to the year 2286."""


class Timestamp(Segment):
    """A time in milliseconds since 1970, in 13 digits; microseconds are cut off.

    It takes a datetime with a time zone or its RFC 3339 text, and parses to a datetime in UTC.
    """

    pattern = f"[0-9]{{{_TIME_DIGITS}}}"
    description = "a time in milliseconds"
    length = _TIME_DIGITS
    takes = (datetime, str)
    is_digits = True
    is_plain_json = False
    holds = "{{{name}:time}} holds a datetime"
    normalizes = True

    def format(self, value: object) -> str:
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value)
            except ValueError:
                raise ValueError("must be a time such as 2026-01-18T12:00:00Z") from None
        if not isinstance(value, datetime) or value.tzinfo is None:
            raise ValueError("must be a time with a time zone")
        milliseconds = (value - _EPOCH) // _MILLISECOND
        if not 0 <= milliseconds < 10**_TIME_DIGITS:
            raise ValueError("must be a time from 1970 to 2286")
        return str(milliseconds).zfill(_TIME_DIGITS)

    def parse(self, text: str) -> datetime:
        return _EPOCH + int(text) * _MILLISECOND


_NINES_COMPLEMENT = str.maketrans("0123456789", "9876543210")


class Descending(Segment):
    """A number or time in reverse order, so that a scan begins with the greatest: `{at:-time}`.

    The key holds the difference to the greatest number of that many digits.
    """

    is_descending = True

    @checked(DeclarationError)
    def __init__(self, inner: Segment) -> None:
        if not inner.is_digits:
            raise DeclarationError(
                "Only numbers and times can be in descending order: -013d, -010.3f, -time.",
                given=inner.description,
            )
        self.inner = inner
        self.description = f"{inner.description}, greatest first"
        self.pattern = inner.pattern
        self.length = inner.length
        self.normalizes = inner.normalizes

    @property
    def innermost(self) -> Segment:
        return self.inner.innermost

    def format(self, value: object) -> str:
        return self._complement(self.inner.format(value))

    def parse(self, text: str) -> object:
        return self.inner.parse(self._complement(text))

    def from_text(self, text: str) -> object:
        return self.inner.from_text(text)

    @staticmethod
    def _complement(text: str) -> str:
        return text.translate(_NINES_COMPLEMENT)
