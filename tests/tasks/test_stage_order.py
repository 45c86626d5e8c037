import pytest

import pmflib.features
from pmflib.base import ConfigError
from pmflib_tasks.stages import list_steps
from pmflib_tasks.steps import Walk
from tests.pipelines import make_schema


@pytest.mark.parametrize(
    ("em", "words"),
    [
        (
            {"target": "v0"},
            r"em\.target is 'v0', and .* fits no model to a target; .* or remove it",
        ),
        ({"errors": "refit"}, r"em\.errors is 'refit', and .* no errors of parameters; .* 'off'"),
    ],
)
def test_an_option_without_its_feature_is_refused_before_anything_is_read(
    pipeline, monkeypatch, em, words
):
    monkeypatch.setattr(pmflib.features, "FEATURES", ())
    # there are no files to read
    walk = Walk(pipeline(make_schema(3, 2), {}, em=em), list_steps())
    with pytest.raises(ConfigError, match=words):
        walk.reach("dataset")
