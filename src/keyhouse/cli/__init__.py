"""The command line: one file per command in `commands`, and what they share in the modules here.

`keyhouse.cli.__main__:main` is the program. A system's own commands are in its `commands.py`.
"""
