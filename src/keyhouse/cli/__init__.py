"""The command line: one thin file for each command, the options that they share in `options`, output in one place.

`main` is the program. What a command knows comes from public names of the layers below.
"""

from keyhouse.cli.entry import main

__all__ = ["main"]
