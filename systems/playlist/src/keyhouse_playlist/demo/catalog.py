"""A catalog of invented videos, for a demonstration."""

from typing import Final

from keyhouse_playlist.catalog.refresh import Items
from keyhouse_playlist.catalog.tables import CatalogItem

__all__ = ["DemoSource"]

_SERIES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("Harbour Lights", ("Drama", "Series")),
    ("The Night Signal", ("Horror", "Series")),
    ("Paper Moons", ("Comedy", "Series")),
    ("Orbit Nine", ("SciFi", "Series")),
)
_FILMS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("Café de la Lune", ("Drama", "French")),
    ("Die grüne Straße", ("Thriller", "German")),
    ("Ночной поезд", ("Thriller", "Russian")),
    ("東京の夜", ("Drama", "Japanese")),
    ("Revenge of the Lawn Gnomes", ("Horror", "Comedy")),
    ("Robots at the Beach", ("SciFi", "Comedy")),
    ("Seven Silent Clocks", ("Mystery",)),
    ("The Last Lighthouse", ("Drama", "Mystery")),
)


class DemoSource:
    """Four series of twelve episodes and eight films."""

    name = "demo"
    can_follow = True

    async def items(self) -> Items:
        made = _items()
        yield made, len(made)

    def titles(self) -> dict[str, tuple[str, int]]:
        """Return title and duration by manifest, for the robot."""
        return {each.manifest_url: (each.title, each.duration_seconds or 60) for each in _items()}


def _items() -> list[CatalogItem]:
    made = []
    for number, (name, categories) in enumerate(_SERIES):
        for episode in range(12):
            season, place = divmod(episode, 6)
            title = f"{name} S{season + 1:02}E{place + 1:02}"
            seconds = 1_320 + 60 * episode
            made.append(_item(f"series{number}-{episode + 1:02}", title, categories, seconds))
    for number, (name, categories) in enumerate(_FILMS):
        made.append(_item(f"film{number + 1}", name, categories, 5_400 + 300 * number))
    return made


def _item(id: str, title: str, categories: tuple[str, ...], seconds: int) -> CatalogItem:
    return CatalogItem(
        video_id=id,
        title=title,
        categories=list(categories),
        manifest_url=f"https://media.example/{id}.json",
        duration_seconds=seconds,
    )
