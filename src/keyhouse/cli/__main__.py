"""`python -m keyhouse.cli` is `keyhouse`."""

from keyhouse.cli import main

main()
