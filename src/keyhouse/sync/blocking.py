"""Turn asynchronous verbs into blocking ones, with the same signatures."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from keyhouse.sync.loop import call_on_loop, run

__all__ = ["blocking", "blocking_iterator", "items"]

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")

_CHUNK_MAX = 256


def blocking(
    verb: Callable[Concatenate[A, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]:
    """Return the method that calls the verb of the same name, and waits for its result.

    An object of the façade has the asynchronous one as `wrapped`.
    """
    name = verb.__name__

    @wraps(verb)
    def method(self: Any, /, *args: P.args, **named: P.kwargs) -> R:
        result: R = run(getattr(self.wrapped, name)(*args, **named))
        return result

    return method


def blocking_iterator(
    verb: Callable[Concatenate[A, P], AsyncGenerator[R, None]], *, chunk_max: int = _CHUNK_MAX
) -> Callable[Concatenate[Any, P], Iterator[R]]:
    """Return the method that iterates over what the verb of the same name yields.

    Up to `chunk_max` items are fetched ahead, so that the threads do not change for each.
    """
    name = verb.__name__

    @wraps(verb)
    def method(self: Any, /, *args: P.args, **named: P.kwargs) -> Iterator[R]:
        return items(getattr(self.wrapped, name)(*args, **named), chunk_max)

    return method


def items(source: AsyncIterator[R], chunk_max: int = _CHUNK_MAX) -> Iterator[R]:
    """Iterate over an asynchronous generator. It is closed at the end."""
    size = min(16, chunk_max)
    try:
        while True:
            chunk, error = run(_chunk(source, size))
            yield from chunk
            if error is not None:
                raise error
            if len(chunk) < size:
                return
            size = min(2 * size, chunk_max)
    finally:
        if isinstance(source, AsyncGenerator):
            call_on_loop(source.aclose())


async def _chunk(source: AsyncIterator[R], size: int) -> tuple[list[R], Exception | None]:
    """Return the next items, and the error that follows them."""
    chunk: list[R] = []
    try:
        async for item in source:
            chunk.append(item)
            if len(chunk) == size:
                break
    except Exception as error:
        return chunk, error
    return chunk, None
