"""Joining the files of a book to one, with ffmpeg in a limited process (`converter_process`)."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from keyhouse.errors import RecordError
from keyhouse.rooted_path import open_folder_below
from keyhouse.service.background_task import OperationTask
from keyhouse_audiobooks.errors import NoConverterError
from keyhouse_audiobooks.files.audio_files import (
    FoundFile,
    below_root,
    open_regular,
    printable_path,
)
from keyhouse_audiobooks.files.converter_process import Conversion, Input, command
from keyhouse_audiobooks.files.file_reader import FILE_SECONDS_MAX, read_one
from keyhouse_audiobooks.library import Run
from keyhouse_audiobooks.listening.playback import MERGE_TOLERANCE
from keyhouse_audiobooks.records import Segment

__all__ = ["convert", "require_ffmpeg"]

_POLL_SECONDS: Final = 0.2
"""Interval at which a running ffmpeg is checked for cancellation."""
_BYTES_PER_SECOND: Final = 256 * 1_024
"""A slow machine converts more of the files than this, and more than their duration."""
_CODECS: Final = {
    "mp3": ("libmp3lame", "mp3"),
    "m4b": ("aac", "ipod"),
    "ogg": ("libvorbis", "ogg"),
    "flac": ("flac", "flac"),
}
"""Encoder and container of each format, as ffmpeg names them."""


def require_ffmpeg() -> str:
    """Return the path of ffmpeg. Raises NoConverterError (501) if it is not on the PATH."""
    program = shutil.which("ffmpeg")
    if program is None:
        raise NoConverterError("This needs ffmpeg on the PATH of the service.")
    return program


async def convert(
    task: OperationTask,
    run: Run,
    segments: Sequence[Segment],
    roots: Sequence[Path],
    target: Path,
    format: str,
) -> None:
    """Write the joined file, whole or not at all. Raises RecordError if a file cannot be read or
    the result is not as long as the files."""
    place = below_root(str(target), roots)
    if place is None:
        raise RecordError("The files of the book are not below a root.", path=str(target))
    root, below = place
    draft = os.path.join(os.path.dirname(below), f".{target.name}.part.{format}")
    expected = sum(each.duration_seconds for each in segments)
    codec, muxer = _CODECS[format]
    try:
        with tempfile.TemporaryDirectory() as folder:
            job = Conversion(
                program=require_ffmpeg(),
                folder=folder,
                files=await run(_inputs, segments, roots),
                root=str(root),
                draft=draft,
                codec=codec,
                muxer=muxer,
                seconds=expected * (1 + 2 * MERGE_TOLERANCE) + 1,
            )
            size = sum(each.size for each in job.files)
            limit = FILE_SECONDS_MAX + expected + size / _BYTES_PER_SECOND
            await _run_program(task, msgspec.json.encode(job), limit)
        await _check_duration(root / draft, expected, roots)
        await run(_rename, root, draft, target.name)
    finally:
        await run(_delete, root, draft)


def _inputs(segments: Sequence[Segment], roots: Sequence[Path]) -> list[Input]:
    """Return the files of the segments. Raises RecordError if one cannot be read."""
    inputs = []
    for segment in segments:
        try:
            open_regular(segment.file_path, roots).close()
        except OSError as error:
            raise RecordError(
                "A file of the book cannot be read: scan the library.",
                path=printable_path(segment.file_path),
                reason=str(error),
            ) from None
        place = below_root(segment.file_path, roots)
        assert place is not None  # it was opened there
        inputs.append(Input(str(place[0]), place[1], segment.size_bytes))
    return inputs


async def _check_duration(draft: Path, expected: float, roots: Sequence[Path]) -> None:
    """Raise RecordError if a converted file is not as long as the files it was made of: ffmpeg
    leaves out files that it cannot read."""
    status = draft.lstat()
    file = await read_one(FoundFile(str(draft), status.st_size, status.st_mtime_ns), roots)
    seconds = 0 if file.tags is None else file.tags.duration_seconds
    if abs(seconds - expected) > MERGE_TOLERANCE * expected:
        raise RecordError(
            "ffmpeg could not convert all files: scan the library, and see which are broken.",
            expected=expected,
            found=seconds,
        )


async def _run_program(task: OperationTask, job: bytes, seconds: float) -> None:
    """Run ffmpeg until it ends, takes too long or the operation is cancelled. Raises RecordError if
    it fails."""
    process = await asyncio.create_subprocess_exec(
        *command(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    reading = asyncio.ensure_future(process.communicate(job))
    deadline = asyncio.get_running_loop().time() + seconds
    try:
        while not reading.done():
            await asyncio.wait([reading], timeout=_POLL_SECONDS)
            if task.is_cancelled:
                await task.commit()  # raises OperationCancelledError
            if asyncio.get_running_loop().time() > deadline:
                raise RecordError("ffmpeg takes too long for these files.", seconds=seconds)
        _, errors = await reading
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        reading.cancel()
    if process.returncode:
        raise RecordError("ffmpeg failed.", reason=errors.decode(errors="replace")[:500])


def _rename(root: Path, draft: str, name: str) -> None:
    """Link the draft to its name in the same folder, without overwriting. Raises OSError."""
    *folders, old = draft.split(os.sep)
    with open_folder_below(root, folders) as folder:
        os.link(old, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)


def _delete(root: Path, draft: str) -> None:
    *folders, name = draft.split(os.sep)
    with suppress(OSError), open_folder_below(root, folders) as folder:  # it may be gone
        os.unlink(name, dir_fd=folder)
