"""Limits of the JSON of one request, over HTTP or NATS."""

from typing import Final

REQUEST_VALUES_MAX: Final = 100_000
"""JSON values in the body of an HTTP request, or in a NATS message: they are decoded in one step,
and 100,000 members of an object hold up other requests for a tenth of a second."""

SLOW_NUMBERS_MAX: Final = 1_000
"""Numbers with an exponent of three digits in one request: a float near 1e-308 or 1e308 takes 300
times as long to parse as others. 1,000 digits of a longer integer count as ten."""
