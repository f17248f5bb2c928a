"""`python -m textspace`, which torchrun needs."""

from textspace.cli import main

main()
