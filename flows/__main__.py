"""Entry point of the command ``pmf``: an interruption is one line, also while the command is being loaded."""

import sys


def main() -> None:
    """Load the command line and run it."""
    try:
        from flows import cli

        cli.main()
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from here", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
