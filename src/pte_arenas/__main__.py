"""`python -m pte_arenas` is the command `pte-arenas`."""

from pte_arenas.cli import main

main()
