"""`python -m examples.tour [FOLDER]`: run the demo in that folder, or in a temporary one."""

import asyncio
import sys
import tempfile
from pathlib import Path

from examples.tour.story import tell


def main() -> None:
    if len(sys.argv) > 2 or any(argument.startswith("-") for argument in sys.argv[1:]):
        sys.exit("usage: python -m examples.tour [FOLDER]")
    if len(sys.argv) == 2:
        folder = Path(sys.argv[1])
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / "clips.db").exists():
            sys.exit(f"{folder / 'clips.db'} exists: choose an empty folder, or delete the file.")
        asyncio.run(tell(folder / "clips.db", kept=True))
    else:
        with tempfile.TemporaryDirectory(prefix="keyhouse-demo-") as made:
            asyncio.run(tell(Path(made) / "clips.db", kept=False))


if __name__ == "__main__":
    main()
