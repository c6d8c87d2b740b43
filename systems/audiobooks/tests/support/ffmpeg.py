"""An ffmpeg for tests: the one of the PATH, or that of the package imageio-ffmpeg."""

import shutil
from pathlib import Path

import pytest


def ffmpeg_folder(folder: Path) -> Path:
    """Return a folder that holds `ffmpeg`; skip the test if there is none."""
    program = shutil.which("ffmpeg")
    if program is None:
        package = pytest.importorskip("imageio_ffmpeg")
        program = package.get_ffmpeg_exe()
    folder.mkdir(exist_ok=True)
    (folder / "ffmpeg").symlink_to(program)
    return folder
