"""How a model was fitted: what every model carries, is saved with and shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, TypeVar

from pmflib.base.json_records import Form, from_json

T = TypeVar("T")


@dataclass(frozen=True, eq=False, repr=False)
class ModelOrigin(Mapping[str, Any]):
    """How a model was fitted; also a mapping of its facts by name, plain JSON types.

    Parameters
    ----------
    method
        Name of the method, such as "spa+em".
    passes
        Number of passes over the samples that its parameters have had.
    pseudo_count
        Pseudo-count of every parameter, samples.
    average
        Number of fits that the model is an average of.
    final
        Whether it is an average of fits to all rows, whose states are not those of one fit.
    best
        Number of starts, of which it is the best.
    n_effective
        Effective number of samples (Kish) of a fit with weights.
    raked
        Whether it was raked to known margins.
    extra
        Facts that other rooms and features add, by name; `select` reads those of one.
    order
        Names of all facts in the order in which they were noted, which files and summaries keep. By default the fields
        that are not None, and the others.

    Examples
    --------
    >>> origin = ModelOrigin(method="spa", extra={"sites": 3}).add(raked=True)
    >>> origin
    {'method': 'spa', 'sites': 3, 'raked': True}
    >>> origin.raked, origin["sites"], origin.passes
    (True, 3, None)
    """

    method: str | None = None
    passes: int | None = None
    pseudo_count: float | None = None
    average: int | None = None
    final: bool | None = None
    best: int | None = None
    n_effective: float | None = None
    raked: bool | None = None
    extra: Annotated[Mapping[str, Any], Form.HIDDEN] = field(default_factory=dict)
    order: Annotated[tuple[str, ...], Form.HIDDEN] = ()

    def __post_init__(self) -> None:
        if not self.order:
            noted = [name for name in _list_own() if getattr(self, name) is not None]
            object.__setattr__(self, "order", (*noted, *self.extra))

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> ModelOrigin:
        """Build an origin of facts by name, in their order."""
        if isinstance(facts, cls):
            return facts
        own = {name: value for name, value in facts.items() if name in _list_own()}
        extra = {name: value for name, value in facts.items() if name not in own}
        return cls(**own, extra=extra, order=tuple(facts))

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> ModelOrigin:
        """Restore an origin from the attributes of a saved model.

        Raises
        ------
        ValueError
            If a fact has another type.
        """
        from_json(cls, content, is_part=True)
        return cls.of(content)

    def add(self, **facts: Any) -> ModelOrigin:
        """Return the origin with more facts, or with other values of those it has."""
        return self.of({**self, **facts})

    def drop(self, *names: str) -> ModelOrigin:
        """Return the origin without some facts."""
        return self.of({name: value for name, value in self.items() if name not in names})

    def select(self, kind: type[T]) -> T:
        """Read some facts as a dataclass with fields of their names.

        Raises
        ------
        ValueError
            If one is missing, or of another type.
        """
        return from_json(kind, dict(self), is_part=True)

    @property
    def n_members(self) -> int:
        """Number of fits that it is an average of; 1 for a single fit."""
        return int(self.average or 1) if self.final else 1

    @property
    def is_stack(self) -> bool:
        """Whether it is a mixture of several models with weights, whose states are not those of one fit."""
        return bool(self.final) and "stack" in self.extra

    def __getitem__(self, name: str) -> Any:
        """Return a fact."""
        if name not in self.order:
            raise KeyError(name)
        return self.extra[name] if name in self.extra else getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the facts, in their order."""
        return iter(self.order)

    def __len__(self) -> int:
        """Return the number of facts."""
        return len(self.order)

    def __repr__(self) -> str:
        """Return the facts as a dictionary."""
        return repr(dict(self))


def _list_own() -> list[str]:
    return [each.name for each in fields(ModelOrigin) if each.name not in ("extra", "order")]
