import pytest

from tests.report.report_runs import run_two_nights


@pytest.fixture(scope="session")
def two_nights(tmp_path_factory):
    """Folder of a pipeline that has run twice; its store is not to be changed."""
    return run_two_nights(tmp_path_factory.mktemp("two nights")).parent
