"""Entry point of the command ``pmf``: what can go wrong before the command line is there is one line."""

import sys


def main() -> None:
    """Load the command line and run it."""
    try:
        try:
            from flows import cli
        except ModuleNotFoundError as error:
            # the library is installed without it; a module of ours that is absent is a defect, and has its traceback
            if (error.name or "").partition(".")[0] in {"flows", "tasks", "pmflib"}:
                raise
            print(
                f"error: the command line needs {error.name!r}, which the extra 'pipeline' brings: "
                "pip install 'pmflib[pipeline]'",
                file=sys.stderr,
            )
            sys.exit(2)
        cli.main()
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from here", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
