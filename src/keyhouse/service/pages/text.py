"""Values as text, for the templates of pages."""

from urllib.parse import quote

__all__ = ["clock_time", "counted", "hours", "quoted", "size"]


def quoted(text: str) -> str:
    """Return text as one segment of a path."""
    return quote(text, safe="")


def counted(number: int, noun: str, nouns: str = "") -> str:
    """Return a number with its noun: `1 row`, `1,200 rows`."""
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"


def size(value: int | None) -> str:
    """Return a number of bytes with three digits."""
    if value is None:
        return ""
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1_000:
            return f"{amount:.3g} {unit}"
        amount /= 1_000
    return f"{amount:.3g} TB"


def clock_time(seconds: float | None) -> str:
    """Return a time of a recording: `4:05` or `1:30:00`."""
    if seconds is None:
        return ""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def hours(value: float) -> str:
    """Return a time of hours or whole days: `36 hours`, `7 days`."""
    amount, unit = (value / 24, "day") if value % 24 == 0 else (value, "hour")
    return f"{amount:g} {unit}{'' if amount == 1 else 's'}"
