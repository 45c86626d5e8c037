"""Base classes of the estimators: encoding of tables, fitting, saving and loading."""

from __future__ import annotations

import base64
import importlib
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from pmflib.apps.estimators.user_tables import LevelValues, UserTable
from pmflib.base.arrays import IntArray, check_row_order
from pmflib.base.codes import Codes
from pmflib.base.constraints import OneOf, at_least, check
from pmflib.base.errors import PmfError, SchemaError, SchemaWarning, StoreError
from pmflib.base.texts import abridge_names, list_some
from pmflib.families.traits.traits import fit_traits
from pmflib.fits.fit_result import FitResult
from pmflib.fits.from_samples import fit_em
from pmflib.fits.target_pool import TargetPool
from pmflib.model import JointPMF
from pmflib.model.joint_pmf import KIND
from pmflib.model.rungs import RungFit
from pmflib.schema import MISSING, Schema, Variable
from pmflib.store.array_groups import FREE_BYTES, read_arrays, refuse_damage
from pmflib.store.zarr_arrays import open_zarr, set_attributes
from pmflib.surveys.drafting.table_draft import propose_variables

NOT_GIVEN = ("",)
"""Strings that count as missing in a user's table, besides nulls and NaN."""

ATTRIBUTE = "estimator"
"""Attribute of a model's Zarr group."""
FORMAT = "pmf-estimator-2"


class JointEstimator(BaseEstimator):  # type: ignore[misc]
    """Base class of the estimators: a joint PMF of the columns of a table.

    Parameters
    ----------
    rank
        Number of latent states; "auto" chooses it on held-out rows, and None fits a stack of models, see
        `pmflib.fit_em`.
    schema
        Variables of the columns, by name, or by position for arrays; columns that it does not name are not used. None
        infers them from the table: numbers with more than 32 distinct values, or with few rows per value, are binned,
        and columns that identify rows, contain free text, or are empty are dropped with a warning.
    bins
        Number of bins for such numbers, at least 2; a few more if single values are very frequent.
    members
        Number of fits from independent starts to average, at least 1; not used by a stack.
    dependence
        Whether columns may depend on each other within a latent state, along a forest: "none", "tree", or "auto", which
        decides on held-out rows; see `pmflib.fit_em`. None means "none" if the rank is a number, otherwise "auto".
    random_state
        Seed of the starts; equal seeds give equal bits.

    Attributes
    ----------
    model_
        The fitted `JointPMF`; its schema contains the variables.
    result_
        The `FitResult` with choices and notes; not available after loading.
    n_features_in_, feature_names_in_
        As in every scikit-learn estimator.
    """

    def __init__(
        self,
        rank: int | Literal["auto"] | None = None,
        *,
        schema: Schema | None = None,
        bins: int = 8,
        members: int = 1,
        dependence: Literal["auto", "none", "tree"] | None = None,
        random_state: Any = 0,
    ) -> None:
        self.rank = rank
        self.schema = schema
        self.bins = bins
        self.members = members
        self.dependence = dependence
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """Declare to scikit-learn that missing values and strings are accepted."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    @property
    def rank_(self) -> int:
        """Return the number of latent states of the fitted model."""
        return self._model.rank

    def save(self, path: str | Path) -> None:
        """Save the fitted estimator as a Zarr group, together with its model; the folder must not exist.

        `pmflib.JointPMF.load` and the commands can read it, too.

        Raises
        ------
        PmfError
            If a parameter or a level cannot be represented in JSON.
        """
        write_estimator(self, self._model, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load an estimator written by `save`.

        Raises
        ------
        StoreError
            If the group is missing, damaged, or of another kind.
        """
        estimator: Self = read_estimator(cls, Path(path))
        return estimator

    @property
    def _model(self) -> JointPMF:
        check_is_fitted(self, "model_")
        model: JointPMF = self.model_
        return model

    def _draft(self, table: UserTable, *, needs_any: bool = True) -> tuple[Variable, ...]:
        """Infer the variables of a table, and keep the values of their levels."""
        columns = table.columns
        # columns of arrays have no names to interpret
        is_named = hasattr(self, "feature_names_in_")
        self._column_names = tuple(columns.column_names)
        if self.schema is not None:
            variables = self._match_schema(is_named=is_named)
        else:
            check(at_least(2, whole=True), bins=self.bins)
            proposals = propose_variables(
                columns,
                missing=NOT_GIVEN,
                bins=self.bins,
                finds_codes=False,
                finds_identifiers=is_named,
            )
            variables = tuple(
                each.variable for each in proposals.values() if each.variable is not None
            )
            left = [
                f"{name!r} is {each.note}" for name, each in proposals.items() if not each.variable
            ]
            if left and not variables and needs_any:
                raise SchemaError(
                    f"no column can be a variable: column {list_some(left, 4, '; column ')}; or pass a schema"
                )
            if left:
                text = f"column {list_some(left, 8, '; column ')}"
                warnings.warn(text, SchemaWarning, stacklevel=4)
        self._keep_values(table, variables)
        return variables

    def _keep_values(self, table: UserTable, variables: tuple[Variable, ...]) -> None:
        """Keep the values of the levels of variables."""
        positions = [self._column_names.index(variable.column) for variable in variables]
        self._values = tuple(
            LevelValues.find(variable, table.columns.columns[position], table.list_values(position))
            for variable, position in zip(variables, positions, strict=True)
        )

    def _match_schema(self, *, is_named: bool) -> tuple[Variable, ...]:
        """Return the variables of the given schema, under the names of the columns."""
        if not isinstance(self.schema, Schema):
            raise SchemaError(
                f"schema is a {type(self.schema).__name__}; pass a pmflib.Schema, or None"
            )
        names = set(self._column_names)
        if absent := [column for column in self.schema.columns if column not in names]:
            hint = (
                "; columns of an array are x0, x1, ..."
                if not is_named
                else "; take it out, or add it"
            )
            raise SchemaError(f"schema has {abridge_names(absent)}, which the table has not{hint}")
        return self.schema.variables

    def _encode(self, table: UserTable, variables: tuple[Variable, ...]) -> IntArray:
        """Encode variables as int16 of shape (n_rows, n_variables).

        A value that is not a level becomes `UNKNOWN`, with a warning, or the level `other` if there is one.
        """
        codes = np.empty((table.n_rows, len(variables)), np.int16)
        news = []
        for position, variable in enumerate(variables):
            # an array may follow a DataFrame, and vice versa
            column = table.columns.columns[self._column_names.index(variable.column)]
            codes[:, position] = variable.encode_column(column)
            new = np.flatnonzero(codes[:, position] < MISSING)
            if new.size:
                news.append(f"{variable.name!r} has {column[int(new[0])].as_py()!r}")
        if news:
            warnings.warn(
                f"{len(news)} columns have values that were not there in fit, and count as missing: column "
                f"{list_some(news, 8, '; column ')}",
                SchemaWarning,
                stacklevel=4,
            )
        return codes

    def _fit_classes(
        self,
        codes: IntArray,
        schema: Schema,
        target: int | None = None,
        sample_weight: Any = None,
        rank: int | None = None,
    ) -> FitResult:
        """Fit latent classes, of the given rank or that of the parameters."""
        is_open = self.rank is None or self.rank == "auto"
        open_dependence: Literal["auto", "none"] = "auto" if is_open else "none"
        return fit_em(
            Codes(codes),
            weight=sample_weight,
            rank=self.rank if rank is None else rank,
            schema=schema,
            members=1 if self.rank is None else self.members,
            target=target,
            dependence=self.dependence or open_dependence,
            # more states predict a class hardly better
            effort="normal" if target is None else "quick",
            rng=self._draw_seed(self.random_state),
        )

    def _keep(self, result: FitResult) -> None:
        """Store a fit and its model."""
        self.result_, self.model_ = result, result.model

    @staticmethod
    def _draw_seed(random_state: Any) -> int:
        """Return a seed given a number, a legacy NumPy generator, or None, which gives a different one each time."""
        if isinstance(random_state, int | np.integer):
            return int(random_state)
        if isinstance(random_state, np.random.Generator):
            return int(random_state.integers(2**31))
        return int(check_random_state(random_state).randint(2**31 - 1))


METHODS = ("classes", "traits")


class TableEstimator(JointEstimator):
    """Base class of the estimators without a target: all columns are treated alike.

    Parameters
    ----------
    rank, schema, bins, members, dependence, random_state
        As in `JointEstimator`.
    method
        "classes": latent classes, for rows that fall into types. "traits": continuous traits, for rows that differ by
        degree, such as people with ratings; see `pmflib.families.fit_traits`. With traits, ``rank`` is the number of
        states used to discretise them, ``members`` is ignored, and ``dependence`` is not available.
    dimensions
        Number of traits besides the biases of rows toward high and toward extreme levels, at least 0; "auto" chooses it
        on held-out cells. Not used with classes.

    Attributes
    ----------
    model_, result_, n_features_in_, feature_names_in_
        As in `JointEstimator`.
    """

    def __init__(
        self,
        rank: int | Literal["auto"] | None = "auto",
        *,
        method: Literal["classes", "traits"] = "classes",
        schema: Schema | None = None,
        bins: int = 8,
        members: int = 1,
        dependence: Literal["auto", "none", "tree"] | None = "none",
        dimensions: int | Literal["auto"] = "auto",
        random_state: Any = 0,
    ) -> None:
        super().__init__(
            rank,
            schema=schema,
            bins=bins,
            members=members,
            dependence=dependence,
            random_state=random_state,
        )
        self.method = method
        self.dimensions = dimensions

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit a joint PMF of the columns.

        Parameters
        ----------
        X
            DataFrame, Arrow table, or array of shape (n_rows, n_columns); cells may be missing.
        y
            Ignored.
        sample_weight
            Weights of the rows, numbers above 0 of shape (n_rows,); None for 1 each. See `pmflib.fit_em`.

        Returns
        -------
        The estimator.

        Raises
        ------
        ValueError
            If X has no rows or columns, or contains infinity.
        PmfError
            If a parameter is out of range.
        SchemaError
            If no column can be a variable, or the given schema does not fit.
        """
        self._fit_table(X, sample_weight)
        return self

    def _fit_table(self, table: Any, sample_weight: Any = None) -> IntArray:
        """Check the method, infer the variables, and fit; returns the fitted codes."""
        self._check_method()
        check_row_order(table, sample_weight=sample_weight)
        read = UserTable.read(self, table, reset=True)
        schema = Schema(self._draft(read))
        self._empty = read.given[:0]
        codes = np.maximum(self._encode(read, schema.variables), MISSING)
        if self.method == "classes":
            self._keep(self._fit_classes(codes, schema, sample_weight=sample_weight))
        else:
            seed = self._draw_seed(self.random_state)
            dimensions = self.dimensions
            n_states = "auto" if self.rank is None else self.rank
            self._keep(
                fit_traits(
                    Codes(codes),
                    schema,
                    dimensions=dimensions,
                    n_states=n_states,
                    rng=seed,
                    weight=sample_weight,
                )
            )
        return codes

    def _check_method(self) -> None:
        check(OneOf(METHODS), method=self.method)
        if self.method == "traits" and self.dependence not in (None, "none"):
            raise PmfError(
                f"dependence is {self.dependence!r} and method is 'traits', which has no latent classes for variables "
                "to depend on each other in; give method='classes', or leave dependence out"
            )

    def _read_codes(self, table: Any) -> tuple[UserTable, IntArray]:
        """Read a table, and encode it under the fitted model as in `_encode`."""
        model = self._model
        read = UserTable.read(self, table, reset=False)
        return read, self._encode(read, model.schema.variables)

    def _refuse_parts(self, what: str) -> None:
        """Refuse to make cells that hold several answers."""
        if parts := [variable.column for variable in self._model.schema if variable.part]:
            raise PmfError(
                f"column {parts[0]!r} holds several answers in a cell, which {what} does not write; pass a table with "
                "a column of no and yes for each answer"
            )

    def _select_empty(self, names: tuple[str, ...]) -> Any:
        """Return an empty table like the fitted one, with some of its columns."""
        positions = [self._column_names.index(name) for name in names]
        if hasattr(self._empty, "iloc"):
            return self._empty.iloc[:, positions]
        if hasattr(self._empty, "select"):
            return self._empty.select(list(names))
        return self._empty[:, positions]


def write_estimator(estimator: Any, model: JointPMF, path: Path) -> None:
    """Save a model with its estimator; see `pmflib.apps.estimators.joint_estimator.JointEstimator.save`."""
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
    pool = getattr(estimator, "pool_", None)
    if pool is not None:
        content["pool"] = [each.to_json() for each in pool.rungs]
    model.save(path)
    if pool is not None:
        pool.save(path)
    if content.get("n_draws", 1) != 1:
        for draw, refit in enumerate(estimator.draw_models_):
            refit.save(path / f"draw-{draw:05}")
    set_attributes(open_zarr(path, "a"), {ATTRIBUTE: content})


def read_estimator(requested: type[Any], path: Path) -> Any:
    """Load an estimator of a class; see `pmflib.apps.estimators.joint_estimator.JointEstimator.load`."""
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
            classes, dtype = np.array(content["classes"]), np.dtype(content["class_dtype"])
            if dtype.itemsize * classes.size > max(classes.nbytes, FREE_BYTES):
                raise StoreError(
                    f"class_dtype {str(dtype)!r} of {str(path)!r} takes more than {FREE_BYTES:,} bytes for "
                    f"{classes.size} classes; save the estimator again"
                )
            estimator.classes_ = np.array(content["classes"], dtype)
        estimator.model_ = model
        if "classes" in content:
            rungs = [RungFit.from_json(each) for each in content.get("pool", ())]
            target = model.schema.n_variables - 1
            estimator.pool_ = TargetPool.load(path, rungs, target) if rungs else None
        if "n_draws" in content:
            estimator._empty_names = tuple(content["empty_names"])
            folders, n_draws = sorted(path.glob("draw-*")), content["n_draws"]
            if n_draws != max(len(folders), 1):
                raise StoreError(
                    f"{str(path)!r} states {n_draws} draws and has {len(folders)}; save the estimator again"
                )
            estimator.draw_models_ = tuple(map(JointPMF.load, folders)) or (model,)
    return estimator


def _read_values(content: Mapping[str, Any]) -> LevelValues:
    means = content["means"]
    by_level = tuple(tuple(level) for level in content["by_level"])
    return LevelValues(by_level, None if means is None else tuple(means))


def _to_json(what: str, value: Any) -> Any:
    """Convert a value to JSON types."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise PmfError(
        f"{what} is {value!r}, a {type(value).__name__}, which JSON cannot hold; make it a text or a number, or pickle "
        "the estimator"
    )


def _pack(empty: Any) -> dict[str, str]:
    """Serialise an empty table, which describes the columns, to strings."""
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
        # categories are stored in a record batch: an empty table has none
        writer.write_batch(batch)
    return {"of": of, "stream": base64.b64encode(sink.getvalue()).decode()}


def _join_chunks(table: pa.Table) -> pa.RecordBatch:
    arrays = [column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)


def _unpack(content: Mapping[str, str]) -> Any:
    """Restore the table given to `_pack`."""
    if content["of"] == "array":
        return np.empty((0, int(content["n_columns"])), np.dtype(content["dtype"]))
    with pa.ipc.open_stream(base64.b64decode(content["stream"])) as reader:
        table = reader.read_all()
    if content["of"] == "pandas":
        return table.to_pandas()
    if content["of"] == "polars":
        return importlib.import_module("polars").from_arrow(table)
    return table
