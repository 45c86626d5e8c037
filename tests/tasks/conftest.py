import pytest

from pmflib.cluster.workers import start_workers
from pmflib_tasks.config import ClusterConfig, make_config
from tests.pipelines import as_wide, draw_codes, make_schema, run_to_model


@pytest.fixture(scope="session")
def workers():
    """Address of two threads."""
    with start_workers(ClusterConfig(workers=2)) as address:
        yield address


@pytest.fixture
def pipeline(tmp_path):
    """Give a function that writes a schema and a configuration, and returns the configuration."""

    def write(schema, source, /, **sections):
        (tmp_path / "data").mkdir(exist_ok=True)
        schema.save(tmp_path / "schema.json")
        data = {
            "source": {"path": "data", "layout": "wide", **source},
            "store": {"folds": 4},
            "model": {"rank": 2},
            "em": {"max_passes": 5},
        }
        return make_config(data | sections, base=tmp_path)

    return write


@pytest.fixture
def fitted(pipeline, tmp_path, workers):
    """Configuration and references of a small wide pipeline."""
    schema = make_schema(3, 2, 4, 2)
    config = pipeline(schema, {})
    (tmp_path / "data" / "a.csv").write_text(as_wide(draw_codes(800, schema.cardinalities)))
    return config, run_to_model(config, workers)
