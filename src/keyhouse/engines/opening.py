"""The result of `open_engine` and `open_store`: it can be awaited, or used with `async with`.

engine = await open_engine("sqlite:data.db")     # close it yourself

async with open_engine("sqlite:data.db") as engine:
    ...                                          # closed at the end of the block
"""

from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

__all__ = ["Opening"]


class Closeable(Protocol):
    async def close(self) -> None: ...


C = TypeVar("C", bound=Closeable)


class Opening(Coroutine[Any, Any, C]):
    """Something that is being opened. It is a coroutine, so `asyncio.run` and tasks take it too."""

    __slots__ = ("_opened", "_opening")

    def __init__(self, opening: Coroutine[Any, Any, C]) -> None:
        self._opening = opening

    def __await__(self) -> Generator[Any, None, C]:
        return self._opening.__await__()

    async def __aenter__(self) -> C:
        self._opened = await self._opening
        return self._opened

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._opened.close()

    def send(self, value: Any) -> Any:
        return self._opening.send(value)

    def throw(self, *error: Any) -> Any:
        return self._opening.throw(*error)

    def close(self) -> None:
        """Close the coroutine without running it."""
        self._opening.close()

    if not TYPE_CHECKING:  # a type checker rejects the attribute by itself

        def __enter__(self) -> Any:
            self.close()
            raise TypeError(
                "This is opened with `async with`; in a program without an event loop, open it with"
                " `keyhouse.sync`."
            )

        def __exit__(self, *error: object) -> None:
            """Python asks for it before it enters."""

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"{name!r} belongs to what is being opened: write `await` or `async with` before"
                " `open_store(…)` or `open_engine(…)`."
            )
