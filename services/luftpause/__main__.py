"""How does the program start, so that Ctrl-C ends it without a traceback from its first import on?"""


def main() -> None:
    """`luftpause` and `python -m luftpause`."""
    try:
        from luftpause.cli.app import main as run

        run()
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
