import shutil
from functools import partial

import pytest

from pmflib.cluster.workers import start_workers
from pmflib_tasks.config import ClusterConfig
from tests.pipelines import as_wide, draw_codes, make_schema, run_to_model, write_pipeline


@pytest.fixture(scope="session")
def workers():
    """Address of two threads."""
    with start_workers(ClusterConfig(workers=2)) as address:
        yield address


@pytest.fixture
def pipeline(tmp_path):
    """Give a function that writes a schema and a configuration, and returns the configuration."""
    return partial(write_pipeline, tmp_path)


@pytest.fixture(scope="session")
def fitted_once(tmp_path_factory, workers):
    """Folder and references of a small wide pipeline."""
    folder, schema = tmp_path_factory.mktemp("fitted"), make_schema(3, 2, 4, 2)
    config = write_pipeline(folder, schema, {})
    (folder / "data" / "a.csv").write_text(as_wide(draw_codes(800, schema.cardinalities)))
    return folder, run_to_model(config, workers)


@pytest.fixture
def fitted(fitted_once, pipeline, tmp_path):
    """Configuration and references of a copy of it."""
    folder, stages = fitted_once
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return pipeline(make_schema(3, 2, 4, 2), {}), dict(stages)
