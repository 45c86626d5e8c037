import pytest

from tests.factories import call_command


@pytest.fixture
def call(monkeypatch, tmp_path, capsys):
    """Give a function that runs a command in an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    # titles of columns on one line
    monkeypatch.setenv("COLUMNS", "250")

    def run(*arguments):
        code = call_command(monkeypatch, *arguments)
        return code, *capsys.readouterr()

    return run
