"""Settings of the library: the table `[audiobooks]` of `keyhouse.toml`."""

from typing import Annotated

from msgspec import Meta

from keyhouse.service.settings import KeyRingText, SweepSeconds, TenantSettings
from keyhouse.settings import setting

__all__ = ["AudiobooksSettings"]


class AudiobooksSettings(TenantSettings, frozen=True, kw_only=True):
    sweep_seconds: SweepSeconds = 60.0
    roots: Annotated[
        tuple[str, ...],
        setting(
            "Folders of audio files, which `scan` reads and from which audio is served. With"
            " tenants, {tenant} is the name of a library; a folder without it is of the first one.",
            path=True,
        ),
    ] = ()
    library: Annotated[
        str,
        Meta(pattern="^[A-Za-z0-9_-]{1,64}$"),
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
    organize_pattern: Annotated[
        str,
        setting(
            "Path of an organized file below its root: {author}, {series}, {title}, {track} and"
            " {ext}."
        ),
    ] = "{author}/{series}/{title}/{track} {title}.{ext}"
    key_ring: KeyRingText = None
