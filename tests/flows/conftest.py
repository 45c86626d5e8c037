import sys

import pytest

from flows import cli


@pytest.fixture
def call(monkeypatch, tmp_path, capsys):
    """Give a function that runs a command in an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["pmf", *arguments])
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return run
