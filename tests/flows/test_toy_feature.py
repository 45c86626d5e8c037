"""A feature that the project does not have: a folder and its lines in the tables, from the model to the page."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.pipelines import as_wide, draw_codes, make_schema

ROOT = Path(__file__).parents[2]
FOLDER = {
    "__init__.py": '"""A toy: a family of models, a question to them, and what a run says of it."""',
    "hooks.py": """
HOOKS = {
    "models": {"is_toy": "toy.family:SharesPMF"},
    "model_methods": {"find_surest": "toy.family:find_surest"},
}
""",
    "family.py": """
import numpy as np

from pmflib.model import JointPMF
from pmflib.model.joint_pmf import KIND
from pmflib.store.array_groups import read_arrays


class SharesPMF(JointPMF, mark="is_toy"):
    kind = "toy"

    @classmethod
    def fit(cls, singles, schema):
        return cls(np.ones(1), singles[:, None], schema, {"method": "toy"})

    @classmethod
    def read_parts(cls, folder, schema, origin, attributes):
        arrays, _ = read_arrays(folder, ["prior", "factors"], kind=KIND)
        return cls(arrays["prior"], arrays["factors"], schema, origin)

    def list_parts(self):
        return {}, {"is_toy": True}


def find_surest(model):
    return max(model.schema.names, key=lambda name: model.marginal([name]).max())
""",
    "section.py": """
from pmflib.ingest.options import Section
from pmflib_tasks.feature import FeatureSection


class ToyConfig(Section, FeatureSection):
    shares: bool = False
""",
    "stages.py": """
from pmflib.counts.marginals import normalise_singles
from pmflib.counts.pair_counts import load_singles
from pmflib_tasks.sections import Section
from pmflib_tasks.stage import build_artefact, load_schema, open_store, stage
from pmflib_tasks.steps import Step
from toy.family import SharesPMF
from toy.section import ToyConfig


@stage(name="toy", makes="model")
def fit_shares(config, counts):
    store, schema = open_store(config), load_schema(config)

    def write(folder, work):
        seen = load_singles(store.locate(counts) / "pairs", folds=config.fold_split.train)
        model = SharesPMF.fit(normalise_singles(seen, schema.offsets), schema)
        model.save(folder / "model")
        return {"method": "toy", "rank": 1, "surest": model.find_surest()}

    entry = build_artefact(
        store, "model", inputs={"counts": counts}, options={"toy": True}, version=1, write=write
    )
    return entry.reference


STEPS = (
    Step(
        "model",
        lambda walk: fit_shares(walk.config, walk.stages["counts"]),
        needs=("counts",),
        applies=lambda walk: walk.config.section(ToyConfig).shares,
    ),
)


def describe(facts):
    if "surest" in facts["model"]:
        rows = [("surest variable", facts["model"]["surest"])]
        yield Section.of_values("toy", "Toy shares", ("what", "value"), rows)
""",
    "feature.py": """
from pmflib_tasks.feature import Feature, Place

FEATURE = Feature(
    "toy",
    section={"toy": Place("toy.section:ToyConfig")},
    steps=Place("toy.stages:STEPS"),
    sections={"model": Place("toy.stages:describe")},
)
""",
}
LINES = """
import pmflib.features
import pmflib_tasks.features

pmflib.features.FEATURES += ("toy",)
from toy.feature import FEATURE

pmflib_tasks.features.FEATURES += (FEATURE,)
"""
"""The lines in the tables, which stand here before anything reads these."""
CALLS = """
import json
import sys

from pmflib_flows.cli import main

for words in json.loads(sys.argv.pop()):
    sys.argv[1:] = words
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    print(f"exit code {code}", flush=True)
"""
CONFIG = '[source]\npath = "a.csv"\nlayout = "wide"\n[model]\nrank = 2\n[em]\nmax_passes = 5\n'


def call(folder, commands, *, lines):
    """Exit codes of commands in a process of their own, and what they wrote."""
    paths = [folder, ROOT, ROOT / "tasks", ROOT / "flows"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    text = (LINES if lines else "") + CALLS
    words = [sys.executable, "-c", text, json.dumps(commands)]
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    *found, rest = done.stdout.split("exit code ")
    assert not rest.strip("0123456789\n")
    codes = [int(each.split("\n")[0]) for each in (*found[1:], rest)]
    return codes, " ".join((done.stdout + done.stderr).split())


def test_a_feature_is_a_folder_and_its_lines_and_goes_with_them(tmp_path):
    schema = make_schema(3, 2, 4)
    schema.save(tmp_path / "schema.json")
    (tmp_path / "a.csv").write_text(as_wide(draw_codes(300, schema.cardinalities)))
    (tmp_path / "pipeline.toml").write_text(CONFIG + "[toy]\nshares = true\n")
    (tmp_path / "toy").mkdir()
    for name, text in FOLDER.items():
        (tmp_path / "toy" / name).write_text(text)
    page = ["report", "pipeline.toml", "--output", "page.html"]
    ask = ["query", "pipeline.toml", "P(v1 | v0=1)", "--from", "model"]
    codes, said = call(tmp_path, [["run", "pipeline.toml"], page, ask], lines=True)
    assert codes == [0, 0, 0], said
    assert "Toy shares" in said
    assert "Toy shares" in (tmp_path / "page.html").read_text("utf-8")
    # without its folder and its lines, nothing else misses it
    shutil.rmtree(tmp_path / "toy")
    codes, said = call(tmp_path, [["run", "pipeline.toml"]], lines=False)
    assert (codes, "toy: unknown option" in said) == ([2], True), said
    (tmp_path / "pipeline.toml").write_text(CONFIG)
    run, promote = (["run", "pipeline.toml"], ["promote", "pipeline.toml"])
    codes, said = call(tmp_path, [ask, run, page, promote, ask], lines=False)
    assert codes == [4, 0, 0, 0, 0], said
    assert "holds a model of is_toy 'True', which is not known here" in said
    assert "Toy shares" not in (tmp_path / "page.html").read_text("utf-8")
