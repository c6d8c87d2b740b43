"""Measure known attacks: `python -m tests.abuse [SECONDS] [NAME...]`; `all at once` is a name."""

import sys
import tempfile
from pathlib import Path

from tests.abuse.attacks import ALL_AT_ONCE, ATTACKS
from tests.abuse.support.attack import CALM_SECONDS, run


def main(arguments: list[str]) -> None:
    seconds = float(arguments[0]) if arguments else 10.0
    for name in arguments[1:] or ATTACKS:
        attack = ALL_AT_ONCE if name == "all at once" else ATTACKS[name]
        with (
            tempfile.TemporaryDirectory() as folder,
            attack.server(Path(folder)) as server,
        ):
            if attack.prepare is not None:
                attack.prepare(server)
            clients = {name: attack.clients}
            print(run(server, clients, seconds=seconds, calm_seconds=CALM_SECONDS), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
