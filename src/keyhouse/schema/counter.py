"""Counters: numbers that are changed by adding; some expire, some have a row for each day."""

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from keyhouse.advice.arguments import checked
from keyhouse.errors import DeclarationError, RecordError, UsageError
from keyhouse.keys.template import Template
from keyhouse.limits import COUNTER_MAX
from keyhouse.schema.expiry import Expiry
from keyhouse.schema.links import Owner
from keyhouse.schema.record import Record
from keyhouse.schema.record_json import RecordJson

DAYS_MAX = 3_660
"""Days of one sum."""


class CounterJson(RecordJson[int]):
    """The JSON of a number that can be added to."""

    def encode_and_read(self, value: int) -> tuple[bytes, int]:
        """Return JSON and value of a number. Raises RecordError if it could not be added to."""
        written = super().encode_and_read(value)
        if abs(value) > COUNTER_MAX:
            raise RecordError(
                "A counter is a whole number of 64 bits.", counter=self.name, limit=COUNTER_MAX
            )
        return written


class Counter(Record[int]):
    """A row that holds a whole number and is changed by adding. An absent one is 0.

    - `expiry=fixed(…)`: it expires that long after its first add, and starts again at 0.
    - A key field of type `date` counts each day (UTC) in its own row: an add without that field
      is of today, and `Store.sum_of_days` sums the last days. With an expiry, old days disappear.
    """

    kind = "counter"
    json_type = CounterJson

    @checked(DeclarationError)
    def __init__(
        self,
        at: str | Template,
        *,
        name: str | None = None,
        doc: str = "",
        expiry: Expiry | None = None,
        belongs_to: Owner | tuple[Owner, ...] = (),
    ) -> None:
        if expiry is not None and expiry.mode != "fixed":
            raise DeclarationError(
                "A counter expires some time after its first add: expiry=fixed(seconds).",
                counter=name or str(at),
                expiry=expiry.mode,
            )
        template = Template(at) if isinstance(at, str) else at
        words = re.findall("[a-z0-9]+", " ".join(template.literals).lower())
        if not name and not words:
            raise DeclarationError(
                "A counter whose key has no word needs a name.", template=template.text
            )
        super().__init__(
            int,
            template,
            name=name or "_".join(words),
            doc=doc,
            expiry=expiry,
            belongs_to=belongs_to,
        )
        days = [
            field
            for field, segment in zip(template.fields, template.segments, strict=True)
            if date in segment.takes
        ]
        self.day_field = days[0] if len(days) == 1 else None
        """The key field that is the day of an add."""

    def address_of(self, fields: dict[str, Any], now: int) -> dict[str, Any]:
        """Return the key fields of an add at `now`: those given, and today where the day is not."""
        if self.day_field is None or self.day_field in fields:
            return fields
        return fields | {self.day_field: day_of(now)}

    def days(self, count: int, now: int, fields: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the key fields of each of the last days, with today."""
        if self.day_field is None:
            raise UsageError(
                "The counter does not count by day: its key has no field of type `date`.",
                counter=self.name,
            )
        if type(count) is not int or not 1 <= count <= DAYS_MAX:
            raise UsageError("A sum is of 1 to 3,660 days.", days=count)
        today = day_of(now)
        return [{**fields, self.day_field: today - timedelta(days=ago)} for ago in range(count)]


def day_of(now: int) -> date:
    """Return the day (UTC) of clock milliseconds."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=now)).date()
