"""Tables from which an engine's `error_map` translates the errors of its driver."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from keyhouse.errors import EngineError, KeyhouseError

Raised = TypeVar("Raised")

Rules = tuple[tuple[type[KeyhouseError], Mapping[Raised, str]], ...]
"""By the error to raise: what the driver raised, and the sentence. The first match decides."""


def translate_by(
    rules: Rules[Raised], matches: Callable[[Raised], bool], error: Exception, **where: str
) -> KeyhouseError:
    """Return the error to raise: what happened, what to do, and where."""
    for error_type, sentences in rules:
        for raised, sentence in sentences.items():
            if matches(raised):
                return error_type(sentence, **where, detail=str(error)).caused_by(error)
    sentence = "The engine failed with an unexpected error."
    return EngineError(sentence, **where, detail=str(error)).caused_by(error)
