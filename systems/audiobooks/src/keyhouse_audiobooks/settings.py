"""Settings of the library: the table `[audiobooks]` of `keyhouse.toml`."""

from typing import Annotated

from msgspec import Meta

from keyhouse.service.settings import (
    KeyRingText,
    SessionHours,
    SweepSeconds,
    UnlimitedTenantSettings,
)
from keyhouse.settings import setting

__all__ = ["AudiobooksSettings"]


class AudiobooksSettings(UnlimitedTenantSettings, frozen=True, kw_only=True):
    """A library has no quota: its rows follow the files below its roots, and no listener's place is
    rejected for want of room."""

    sweep_seconds: SweepSeconds = 60.0
    roots: Annotated[
        tuple[str, ...],
        setting(
            "Folders of audio files, which `scan` reads and from which audio is served. With"
            " tenants, {tenant} is the name of a library; a folder without it is of the first one.",
            path=True,
        ),
    ] = ()
    covers: Annotated[
        str | None,
        setting(
            "A folder for the covers of books, which services on several machines share. Default:"
            " the data folder.",
            path=True,
        ),
    ] = None
    library: Annotated[
        str,
        Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$(?!\n)"),
        setting("The library that is served: the space of its rows."),
    ] = "main"
    tenants: Annotated[
        bool,
        setting(
            "Several libraries in one service, with `tenant:<name>:` in front of all keys;"
            " `library` is the first one. `keyhouse audiobooks tenants` converts a store."
        ),
    ] = False
    keep_days: Annotated[
        int, Meta(ge=0), setting("Days for which playback events are kept; 0: forever.")
    ] = 365
    keep_events: Annotated[
        int,
        Meta(ge=0),
        setting("Newest playback events of a listener and book that are kept at any age."),
    ] = 100
    session_hours: SessionHours = 24.0
    remembered_session_hours: Annotated[
        float, Meta(gt=0), setting("The same, for a user who chose to stay signed in.")
    ] = 168.0
    device_key: Annotated[
        Annotated[str, Meta(min_length=32)] | None,
        setting(
            "Secret of the cookies of devices that have signed in, at least 32 characters; the same"
            " for all processes. Default: generated in the data folder.",
            secret=True,
        ),
    ] = None
    organize_pattern: Annotated[
        str,
        setting(
            "Path of an organized file below its root: {author}, {series}, {title}, {track} and"
            " {ext}."
        ),
    ] = "{author}/{series}/{title}/{track} {title}.{ext}"
    key_ring: KeyRingText = None
