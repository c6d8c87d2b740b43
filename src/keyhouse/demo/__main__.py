"""`python -m keyhouse.demo [FOLDER]`: in a folder of its own, which is removed at the end, or in yours, which stays."""

import asyncio
import sys
import tempfile
from pathlib import Path

from keyhouse.demo.story import tell


def main() -> None:
    if len(sys.argv) > 2 or any(argument.startswith("-") for argument in sys.argv[1:]):
        sys.exit("usage: python -m keyhouse.demo [FOLDER]")
    if len(sys.argv) == 2:
        folder = Path(sys.argv[1])
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / "clips.db").exists():
            sys.exit(
                f"{folder / 'clips.db'} is there already: name an empty folder, or remove the file."
            )
        asyncio.run(tell(folder / "clips.db", kept=True))
    else:
        with tempfile.TemporaryDirectory(prefix="keyhouse-demo-") as made:
            asyncio.run(tell(Path(made) / "clips.db", kept=False))


if __name__ == "__main__":
    main()
