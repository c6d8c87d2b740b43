"""Caddy, with the configuration of the guide."""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.docs.pages import DOCS, blocks
from tests.support.polling import wait_until

GUIDE = DOCS / "guides" / "several-processes.md"
CADDY = Path(sys.executable).with_name("caddy")


def configuration(hosts: Sequence[str], listening: Path) -> str:
    """Return the guide's Caddyfile for these hosts, without TLS, on a Unix socket."""
    [text] = [text for text in blocks(GUIDE.read_text(), "text") if "reverse_proxy" in text]
    text, named = re.subn(r"(?<=reverse_proxy )10\.\S+ 10\.\S+", " ".join(hosts), text)
    assert named == 1
    site = f"http:// {{\n    bind unix/{listening}\n"
    return "{\n    admin off\n}\n" + text.replace("data.example.org {\n", site)


@contextmanager
def proxy(folder: Path, hosts: Sequence[str]) -> Iterator[Path]:
    """Run it in front of the hosts until the block ends; return its Unix socket."""
    with TemporaryDirectory() as short, (folder / "proxy.log").open("w") as log:
        listening, file = Path(short) / "proxy.sock", folder / "Caddyfile"
        file.write_text(configuration(hosts, listening))
        command = [str(CADDY), "run", "--config", str(file), "--adapter", "caddyfile"]
        process = subprocess.Popen(command, stdout=log, stderr=log, env={"HOME": str(folder)})
        try:
            wait_until(listening.exists)
            yield listening
        finally:
            process.kill()
            process.wait()
