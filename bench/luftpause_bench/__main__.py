"""`python -m luftpause_bench NAME …`: which benchmark is wanted?"""

import sys

from luftpause_bench.registry import listed, run


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in {"-h", "--help"}:
        print(f"python -m luftpause_bench NAME [--help | options]; names:\n{listed()}")
        return 0 if arguments else 2
    return run(arguments[0], arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
