"""The command line: `keyhouse describe`, `explain`, `export`, `import`, `move`. One thin file for each, output in one place.

`main` is the program. What a command knows comes from public names of the layers below.
"""

from keyhouse.cli.entry import main

__all__ = ["main"]
