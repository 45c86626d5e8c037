"""What Prefect is shown of a stage: bounded, and escaped where it would be read as Markdown."""

import pytest

from pmflib.store import Entry, Reference
from pmflib_tasks.prefect_runs import MOST_CHARACTERS, MOST_FACTS, show_entry


@pytest.fixture
def shown(monkeypatch):
    """Tables that were given to Prefect, in a task of a pipeline."""
    tables = []
    monkeypatch.setattr("prefect.assets.add_asset_metadata", lambda key, facts: None)
    monkeypatch.setattr(
        "prefect.artifacts.create_table_artifact", lambda **given: tables.append(given["table"])
    )
    monkeypatch.setattr("pmflib_tasks.prefect_runs._pipeline", FixedName())
    return tables


class FixedName:
    def get(self):
        return "p"


def test_show_entry__texts_of_any_length(shown):
    long = "x" * 100_000
    summary = {long: {long: [long] * 100}, "n": 1.5} | {f"fact {n}": n for n in range(1000)}
    inputs = {f"file {n}": Reference("samples", "1" * 64, "2" * 64) for n in range(1000)}
    show_entry(Entry(Reference("model", "3" * 64, "4" * 64), inputs, {}, 1, summary), 1.0)
    (table,) = shown
    assert len(table) == 2 * MOST_FACTS
    assert max(len(text) for row in table for text in row.values()) == MOST_CHARACTERS
    assert {"what": "n", "value": "1.5"} in table
