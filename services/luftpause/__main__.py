"""`python -m luftpause` is `luftpause`."""

from luftpause.cli.app import main

main()
