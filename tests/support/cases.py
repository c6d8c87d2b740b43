"""Cases of one test that share its fixtures: for a service that is expensive to start, and cases
that leave nothing behind."""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any


def cases(
    names: str, values: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test once for each of the values, as `pytest.mark.parametrize` does, in one test. A
    failure names its case."""
    members = [name.strip() for name in names.split(",")]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def run(**fixtures: Any) -> None:
            for value in values:
                case = dict(zip(members, value if len(members) > 1 else [value], strict=True))
                try:
                    test(**fixtures, **case)
                except BaseException as error:
                    error.add_note(f"case: {case!r}")
                    raise

        signature = inspect.signature(test)
        fixtures = [each for name, each in signature.parameters.items() if name not in members]
        run.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return run

    return decorate
