"""The fitted joint PMF: predictions, questions, figures, saving and loading."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from pmflib.base.arrays import IntArray
from pmflib.base.display.summary import Summary, SummaryTable
from pmflib.base.errors import PmfError, StoreError
from pmflib.base.hooks import Offers, find_offers
from pmflib.model.mixture import Arrays, Mixture
from pmflib.model.origin import ModelOrigin
from pmflib.model.predictor import Predictor
from pmflib.schema import Schema
from pmflib.store.array_groups import check_expansion, read_arrays, refuse_damage
from pmflib.store.objects.local_files import find_local_path
from pmflib.store.zarr_arrays import write_arrays

if TYPE_CHECKING:
    from pmflib.base.display.drawing import Axes

KIND = "joint PMF"
"""Attribute ``kind`` of the Zarr group of a model."""
OWN_ATTRIBUTES = frozenset({"kind", "units", "schema", "origin"})
"""Attributes of the Zarr group of every model. Other kinds than latent classes have more, and features that add
attributes to models of any kind list them under the hook ``"model_attributes"``."""
CLASSES: dict[str, type[JointPMF]] = {}
"""Model classes that are defined, by their mark: an attribute that only their Zarr groups have, ``name`` or
``name=value``. The hook ``"models"`` has those of features, which are imported when such a model is first read."""


@dataclass(frozen=True, eq=False)
class JointPMF(Mixture, Predictor):
    """The joint distribution of all variables, as a mixture over latent states.

    ``Pr(i_1, ..., i_N) = sum_f prior[f] * prod_n factor(n)[i_n, f]``; the full tensor is never formed.

    Parameters
    ----------
    prior
        float64 of shape (rank,), probabilities that sum to 1.
    factors
        float64 of shape (n_levels, rank): conditional PMFs, stacked; the rows of each variable sum to 1 per column.
    schema
        Variables and their levels.
    origin
        How the model was fitted: a `pmflib.model.origin.ModelOrigin`, or its facts by name, plain JSON types.

    Raises
    ------
    PmfError
        If shapes do not agree, or a value is not a probability.

    Notes
    -----
    Rooms above and features offer more methods by the hook ``"model_methods"``: functions whose first argument is the
    model. ``dir(model)`` lists them.
    """

    if TYPE_CHECKING:
        # those that are bound by name, for type checkers
        ask: ClassVar[Callable[..., Any]]
        edges: ClassVar[Callable[..., list[tuple[str, str, float]]]]
        plot_traits: ClassVar[Callable[..., Axes]]
        rake: ClassVar[Callable[..., JointPMF]]
        score: ClassVar[Callable[..., Any]]
        traits: ClassVar[Callable[..., Any]]
    else:

        def __getattr__(self, name: str) -> Any:
            """Bind a method that a room above or a feature offers."""
            if not name.startswith("_") and name in (offered := find_methods()):
                return MethodType(offered[name], self)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        """List all names, those of offered methods included."""
        return sorted({*super().__dir__(), *find_methods()})

    def __init_subclass__(cls, *, mark: str, **options: Any) -> None:
        """Register a model class by its mark: see `CLASSES`."""
        super().__init_subclass__(**options)
        CLASSES[mark] = cls

    def __repr__(self) -> str:
        """Return the sizes of the model and its fitting method."""
        method = f", method {self.origin.method!r}" if "method" in self.origin else ""
        return f"JointPMF(rank {self.rank}, {self.schema.n_variables} variables, {self.schema.n_levels} levels{method})"

    def summary(self) -> Summary:
        """Return the latent states by size with their distinguishing levels: text in a terminal, HTML in a notebook."""
        from pmflib.model.state_descriptions import summarise_model

        return summarise_model(self, self.tabulate_states())

    def tabulate_states(self) -> SummaryTable:
        """Return the table of a summary that shows the parameters: the states, with their distinguishing levels."""
        from pmflib.model.state_descriptions import tabulate_states

        return tabulate_states(self)

    def sort_states(self) -> Self:
        """Return the model with its latent states in order of size, the largest first.

        States whose sizes agree to nine decimals are in the descending order of their PMFs, variables by name.
        """
        names, factors = self.schema.names, self.factors.round(9)
        by_name = sorted(range(len(names)), key=names.__getitem__)
        rows = np.concatenate(
            [np.arange(len(factors))[self.schema.rows_of(each)] for each in by_name]
        )
        order = np.lexsort((*-factors[rows[::-1]], -self.prior.round(9)))
        return self._take_states(order)

    def _take_states(self, order: IntArray) -> Self:
        factors = np.ascontiguousarray(self.factors[:, order])
        return replace(self, prior=self.prior[order], factors=factors)

    def plot_states(self, **options: Any) -> Axes:
        """Draw the distinguishing levels of the states: see `pmflib.model.figures.plot_states`."""
        from pmflib.model.figures import plot_states

        return plot_states(self, **options)

    def plot_profiles(self, **options: Any) -> Axes:
        """Draw the level probabilities of each state, with intervals: see `pmflib.model.figures.plot_profiles`."""
        from pmflib.model.figures import plot_profiles

        return plot_profiles(self, **options)

    def plot_associations(self, **options: Any) -> Axes:
        """Draw the most strongly associated pairs: see `pmflib.model.figures.plot_associations`."""
        from pmflib.model.figures import plot_associations

        return plot_associations(self, **options)

    def plot_marginal(self, variable: str | int, **options: Any) -> Axes:
        """Draw the PMF of a variable: see `pmflib.model.figures.plot_marginal`."""
        from pmflib.model.figures import plot_marginal

        return plot_marginal(self, variable, **options)

    def save(self, path: str | Path) -> None:
        """Write the model as a Zarr group that `load` can read; the folder must not exist."""
        own: Arrays = {
            "prior": (self.prior, ("state",)),
            "factors": (self.factors, ("level", "state")),
            "offsets": (self.schema.offsets, ("variable_edge",)),
        }
        metadata = {
            "kind": KIND,
            "units": "probability",
            "schema": self.schema.to_json(),
            "origin": dict(self.origin),
        }
        arrays, attributes = self.list_parts()
        write_arrays(Path(path), own | arrays, metadata | attributes)

    @classmethod
    def load(cls, path: str | Path) -> JointPMF:
        """Read a model written by `save`, of any kind, from a folder or the URL of an object store.

        Raises
        ------
        StoreError
            If the group is missing, damaged, not a model, or one of a kind that is not known here.
        """
        folder = find_local_path(path)
        check_expansion(folder)
        _, attributes = read_arrays(folder, [], kind=KIND)
        with refuse_damage(folder):
            kind = _find_class(path, attributes)
            schema = Schema.from_json(attributes["schema"])
            origin = ModelOrigin.read(attributes["origin"])
            return kind.read_parts(folder, schema, origin, attributes)

    @classmethod
    def read_parts(
        cls, folder: Path, schema: Schema, origin: ModelOrigin, attributes: Mapping[str, Any]
    ) -> JointPMF:
        """Read the parts that `list_parts` describes from a folder, and return a model of this class."""
        arrays, _ = read_arrays(folder, ["prior", "factors"], kind=KIND)
        return JointPMF(arrays["prior"], arrays["factors"], schema, origin)


def find_methods() -> Offers:
    """Return the methods of models that rooms above and features offer, by name.

    Raises
    ------
    PmfError
        If one has the name of a method or property of `JointPMF`.
    """
    offered = find_offers("model_methods")
    for name in offered:
        if hasattr(JointPMF, name):
            raise PmfError(
                f"{offered.places[name]!r} is offered as model method {name!r}, which JointPMF has itself; rename it"
            )
    return offered


def _find_class(path: str | Path, attributes: Mapping[str, Any]) -> type[JointPMF]:
    """Return the class of a saved model, by the attributes of its group."""
    known = OWN_ATTRIBUTES.union(find_offers("model_attributes"))
    others = {name: value for name, value in attributes.items() if name not in known}
    offered = find_offers("models")
    for name, value in others.items():
        for mark in (f"{name}={value}", name):
            if mark in CLASSES or mark in offered:
                return CLASSES[mark] if mark in CLASSES else offered[mark]
    if others:
        name, value = next(iter(others.items()))
        raise StoreError(
            f"{str(path)!r} holds a model of {name} {str(value)[:40]!r}, which is not known here; read it "
            "with the version that wrote it"
        )
    return JointPMF
