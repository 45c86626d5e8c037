"""Estimators on disk: a model, with what the estimator knows beside it as attributes of its Zarr group."""

from __future__ import annotations

import base64
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pmflib.core.errors import PmfError, StoreError
from pmflib.estimators.user_tables import LevelValues
from pmflib.model import JointPMF
from pmflib.model.joint_pmf import KIND
from pmflib.schema import Schema
from pmflib.store.zarr_arrays import open_group, read_arrays, refuse_damage, set_attributes

ATTRIBUTE = "estimator"
"""Attribute of a model's group."""
FORMAT = "pmf-estimator-2"


def write_estimator(estimator: Any, model: JointPMF, path: Path) -> None:
    """Write a model with its estimator: see `pmflib.estimators.joint_estimator.JointEstimator.save`."""
    parameters = estimator.get_params(deep=False)
    schema = parameters.pop("schema")
    names = getattr(estimator, "feature_names_in_", None)
    content: dict[str, object] = {
        "format": FORMAT,
        "class": type(estimator).__name__,
        "parameters": {name: _to_json(name, value) for name, value in parameters.items()},
        "schema": None if schema is None else schema.to_json(),
        "n_features": int(estimator.n_features_in_),
        "feature_names": None if names is None else [str(name) for name in names],
        "columns": list(estimator._column_names),
        "values": [
            {
                "by_level": [
                    [_to_json("level", value) for value in level] for level in each.by_level
                ],
                "means": each.means,
            }
            for each in estimator._values
        ],
        "empty": _pack(estimator._empty),
    }
    if hasattr(estimator, "classes_"):
        classes = estimator.classes_
        content["classes"] = [_to_json("class", value) for value in classes.tolist()]
        content["class_dtype"] = classes.dtype.str
    if hasattr(estimator, "draw_models_"):
        content["empty_names"] = list(estimator._empty_names)
        content["n_draws"] = len(estimator.draw_models_)
    model.save(path)
    if content.get("n_draws", 1) != 1:
        for draw, refit in enumerate(estimator.draw_models_):
            refit.save(path / f"draw-{draw:05}")
    set_attributes(open_group(path, "a"), {ATTRIBUTE: content})


def read_estimator(requested: type[Any], path: Path) -> Any:
    """Read an estimator of a class: see `pmflib.estimators.joint_estimator.JointEstimator.load`."""
    model = JointPMF.load(path)
    content = read_arrays(path, [], kind=KIND)[1].get(ATTRIBUTE)
    if content is None:
        raise StoreError(
            f"{str(path)!r} holds a model without an estimator; read it by pmflib.JointPMF.load"
        )
    with refuse_damage(path):
        if content["format"] != FORMAT or content["class"] != requested.__name__:
            raise StoreError(
                f"{str(path)!r} holds a {content['class']} ({content['format']}), not a {requested.__name__} "
                f"({FORMAT}); read it by {content['class']}.load, or fit it again"
            )
        schema = None if content["schema"] is None else Schema.from_json(content["schema"])
        estimator = requested(schema=schema, **content["parameters"])
        estimator.n_features_in_ = content["n_features"]
        if content["feature_names"] is not None:
            estimator.feature_names_in_ = np.array(content["feature_names"], object)
        estimator._column_names = tuple(content["columns"])
        estimator._values = tuple(_read_values(each) for each in content["values"])
        estimator._empty = _unpack(content["empty"])
        if "classes" in content:
            estimator.classes_ = np.array(content["classes"], np.dtype(content["class_dtype"]))
        estimator.model_ = model
        if "n_draws" in content:
            estimator._empty_names = tuple(content["empty_names"])
            names = [f"draw-{draw:05}" for draw in range(content["n_draws"])]
            estimator.draw_models_ = (model,)
            if len(names) > 1:
                estimator.draw_models_ = tuple(JointPMF.load(path / name) for name in names)
    return estimator


def _read_values(content: Mapping[str, Any]) -> LevelValues:
    means = content["means"]
    by_level = tuple(tuple(level) for level in content["by_level"])
    return LevelValues(by_level, None if means is None else tuple(means))


def _to_json(what: str, value: Any) -> Any:
    """Give a value as JSON holds it."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise PmfError(
        f"{what} is {value!r}, a {type(value).__name__}, which JSON cannot hold; make it a text or a number, or pickle "
        "the estimator"
    )


def _pack(empty: Any) -> dict[str, str]:
    """Give a table without rows as texts: what its columns are."""
    if isinstance(empty, np.ndarray):
        return {"of": "array", "dtype": empty.dtype.str, "n_columns": str(empty.shape[1])}
    if hasattr(empty, "iloc"):
        of, batch = "pandas", pa.RecordBatch.from_pandas(empty, preserve_index=False)
    elif hasattr(empty, "to_arrow"):
        of, batch = "polars", _join_chunks(empty.to_arrow())
    else:
        of, batch = "arrow", _join_chunks(empty)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        # categories go with a batch: a table without rows has none
        writer.write_batch(batch)
    return {"of": of, "stream": base64.b64encode(sink.getvalue()).decode()}


def _join_chunks(table: pa.Table) -> pa.RecordBatch:
    arrays = [column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)


def _unpack(content: Mapping[str, str]) -> Any:
    """Give the table that `_pack` was given."""
    if content["of"] == "array":
        return np.empty((0, int(content["n_columns"])), np.dtype(content["dtype"]))
    with pa.ipc.open_stream(base64.b64decode(content["stream"])) as reader:
        table = reader.read_all()
    if content["of"] == "pandas":
        return table.to_pandas()
    if content["of"] == "polars":
        return importlib.import_module("polars").from_arrow(table)
    return table
