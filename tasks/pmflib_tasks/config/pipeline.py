"""The complete configuration ``pipeline.toml``: its sections, and conditions that involve several of them."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import Field, create_model, field_validator, model_validator

from pmflib.base.errors import ConfigError, SchemaError
from pmflib.base.method_options import MethodChoice
from pmflib.base.methods import MEMBER_START_METHODS
from pmflib.base.texts import mask_secrets
from pmflib.ingest.options import DatasetOptions, SchemaOptions, Section, SourceOptions, abridge
from pmflib.ingest.source_paths import escape_text, read_as_text, would_find_store
from pmflib.schema import Schema
from pmflib_tasks.config.data_sections import (
    CountsConfig,
    QualityConfig,
    StoreConfig,
    WindowConfig,
)
from pmflib_tasks.config.model_sections import (
    QUICK,
    EMConfig,
    EvaluateConfig,
    GateConfig,
    ModelConfig,
)
from pmflib_tasks.config.sample_methods import SAMPLE_METHODS
from pmflib_tasks.feature import FeatureSection
from pmflib_tasks.features import FEATURES

S = TypeVar("S", bound=FeatureSection)


@dataclass(frozen=True)
class FoldSplit:
    """Folds for training, for choices and for the final scores."""

    train: tuple[int, ...]
    validation: tuple[int, ...]
    test: tuple[int, ...]


def split_folds(n_folds: int, n_validation: int, n_test: int) -> FoldSplit:
    """Split folds: the last ones test, those before validate, and the rest, at least one, train."""
    first_test = n_folds - n_test
    first_validation = first_test - n_validation
    return FoldSplit(
        tuple(range(first_validation)),
        tuple(range(first_validation, first_test)),
        tuple(range(first_test, n_folds)),
    )


MAX_NAME = 100
"""Maximum length of a pipeline's name, characters: folders and drafts are named after it, and file names are limited to
255 bytes.
"""


class ClusterConfig(Section):
    """Where blocks are processed. Nothing here changes the results."""

    address: str = ""
    """Address of a Dask scheduler; empty starts workers on this machine. PMF_DASK_ADDRESS overrides it."""
    workers: Annotated[int, Field(ge=0, le=4096)] = 0
    """Number of workers on this machine; 0 for one per core. With an address: number of threads to plan for if more
    workers will join, as in adaptive clusters.
    """
    processes: bool = False
    """Whether workers are processes; threads share memory and start faster."""
    always: bool = False
    """Whether every stage uses Dask workers, whatever the size of the data; small runs work in one thread otherwise."""
    memory_limit: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Memory limit in bytes for the data of each worker, or of the run if its workers are threads. 0 uses 70 % of the
    worker's memory limit or of its machine's free memory.
    """
    patience: Annotated[float, Field(ge=0, le=1e6)] = 300.0
    """Time to wait for a scheduler that does not respond, and for workers if there are none, seconds."""


class CoreConfig(Section):
    """Configuration of a pipeline without the sections of features."""

    name: Annotated[str, Field(min_length=1)] = "pipeline"
    """Name that distinguishes the pipelines of a store, and their deployments, artifacts and jobs elsewhere; used as a
    file name. Drafts are named after their folder."""
    source: SourceOptions
    schema_: Annotated[SchemaOptions, Field(alias="schema")] = SchemaOptions()
    window: WindowConfig = WindowConfig()
    store: StoreConfig = StoreConfig()
    counts: CountsConfig = CountsConfig()
    model: ModelConfig
    em: EMConfig = EMConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    quality: QualityConfig = QualityConfig()
    gate: GateConfig = GateConfig()
    cluster: ClusterConfig = ClusterConfig()
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed for everything random: starts, and the cells hidden for evaluation."""
    base: str = ""
    """Folder that paths are relative to: that of the configuration file."""
    file: str = ""
    """Path of the configuration file; empty if it is in memory only."""

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not re.fullmatch(r"\w[\w .-]*", name):
            raise ValueError(
                f"{abridge(name)} is not a file name; use letters, digits, spaces and . - _, a letter or digit first"
            )
        if len(name.encode()) > MAX_NAME:
            raise ValueError(
                f"{abridge(name)} takes {len(name.encode())} bytes; give a name of at most {MAX_NAME}"
            )
        return name

    @model_validator(mode="after")
    def _check_paths(self) -> CoreConfig:
        beside = [path for section in self.sections.values() for path in section.paths]
        own = self.base, self.store.path, self.schema_.file
        for path in (*own, *beside, *self.source_paths):
            if "\0" in path:
                raise ValueError(
                    f"the path {abridge(path)} has a NUL byte, which no file name may hold"
                )
        return self

    @model_validator(mode="after")
    def _check_sources(self) -> CoreConfig:
        store, suffixes = self.resolve(self.store.path), self.source.suffixes
        for path in self.source_paths:
            if would_find_store(path, store, suffixes):
                raise ValueError(
                    f"source.path {abridge(mask_secrets(read_as_text(path)))} contains the store "
                    f"{abridge(mask_secrets(store))}, whose files the next run would read as data: put the store, or "
                    "the data, into a folder of its own"
                )
        return self

    @model_validator(mode="after")
    def _check_window(self) -> CoreConfig:
        if self.window.days is not None and self.source.time is None:
            raise ValueError(
                f"window.days = {self.window.days:g} needs the times of rows: name the column in source.time"
            )
        return self

    @model_validator(mode="after")
    def _check_folds(self) -> CoreConfig:
        held_out = self.evaluate.validation_folds + self.evaluate.test_folds
        if held_out >= self.store.folds:
            raise ValueError(
                f"evaluate holds out {held_out} of {self.store.folds} folds; leave at least one to train on"
            )
        return self

    @model_validator(mode="after")
    def _check_counts(self) -> CoreConfig:
        if self.counts.variables != "auto" and self.source.replicates:
            raise ValueError(
                "counts.variables selects pairs, and replicate weights (source.replicates) need the counts of all "
                "pairs; leave one of them out"
            )
        return self

    @model_validator(mode="after")
    def _check_stack(self) -> CoreConfig:
        if self.model.classes is not None and not self.is_stack:
            raise ValueError(
                f"model.classes = {self.model.classes!r} is for classes beside a stack, and model.rank = "
                f"{self.model.rank!r} fits classes itself; leave one of them out"
            )
        if not self.is_stack:
            return self
        if self.model.classes == "auto" and not self.evaluate.validation_folds:
            raise ValueError(
                "evaluate.validation_folds = 0 leaves nothing to choose by, and model.classes = 'auto' chooses; hold "
                "out a fold, or give a number"
            )
        of_ranks = {
            f"model.method = {self.model.method!r}": self.model.method != "auto",
            "model.method_options": bool(self.model.method_options),
            f"em.members = {self.em.members}": self.em.members > 1,
            f"em.distil = {self.em.distil}": self.em.distil > 0,
            f"em.target = {self.em.target!r}": self.em.target is not None,
            "em.accelerate": self.em.accelerate,
        }
        if named := [name for name, is_given in of_ranks.items() if is_given]:
            raise ValueError(
                f"model.rank is missing, which makes a stack, and {' and '.join(named)} is for models of a rank: give "
                'model.rank, a number or "auto"'
            )
        return self

    @model_validator(mode="after")
    def _check_members(self) -> CoreConfig:
        known = ("auto", "compare", *MEMBER_START_METHODS)
        if self.em.members > 1 and self.model.method not in known:
            raise ValueError(
                f"em.members = {self.em.members} needs starts that differ: give model.method as one of {known}"
            )
        if self.em.distil and self.em.members == 1:
            raise ValueError(f"em.distil = {self.em.distil} needs an average: em.members above 1")
        return self

    @model_validator(mode="after")
    def _check_target(self) -> CoreConfig:
        if self.em.target is not None and self.model.method in SAMPLE_METHODS:
            raise ValueError(
                f"em.target = {self.em.target!r} is for EM, and model.method = {self.model.method!r} fits all "
                "variables alike; leave out the target, or take another method"
            )
        return self

    @model_validator(mode="after")
    def _check_dependence(self) -> CoreConfig:
        if (given := self.model.dependence) == "none":
            return self
        if self.has_traits:
            raise ValueError(
                f"model.dependence = {given!r} is for latent classes, and model.method = 'traits' has none; leave one "
                "of them out"
            )
        if self.em.distil:
            raise ValueError(
                f"em.distil = {self.em.distil} makes a model without forests, and model.dependence = {given!r} asks "
                "for them; leave one of them out"
            )
        if given == "auto" and not (self.is_stack or self.evaluate.validation_folds):
            raise ValueError(
                "evaluate.validation_folds = 0 leaves nothing to choose by, and model.dependence = 'auto' chooses; "
                "hold out a fold, or give 'tree' or 'none'"
            )
        return self

    @model_validator(mode="after")
    def _check_choice(self) -> CoreConfig:
        if self.compares_traits and not self.evaluate.validation_folds:
            raise ValueError(
                "evaluate.validation_folds = 0 leaves nothing to choose by, and model.method = 'compare' chooses; "
                "hold out a fold, or give a method"
            )
        return self

    @model_validator(mode="after")
    def _check_sections(self) -> CoreConfig:
        for section in self.sections.values():
            section.check_pipeline(self)
        return self

    @property
    def sections(self) -> dict[str, FeatureSection]:
        """Sections of the features by their keys."""
        return {name: value for name, value in self if isinstance(value, FeatureSection)}

    def section(self, kind: type[S]) -> S:
        """Return the section of a feature, given its class."""
        return next(each for each in self.sections.values() if isinstance(each, kind))

    @property
    def is_stack(self) -> bool:
        """Whether the model is a stack: no rank is given."""
        return self.model.rank is None

    @property
    def has_traits(self) -> bool:
        """Whether the model has traits in any case: samples are fitted without a start from pairwise counts."""
        return self.model.method == "traits"

    @property
    def compares_traits(self) -> bool:
        """Whether held-out answers say if the model has traits or latent classes."""
        return self.model.method == "compare"

    @property
    def class_method(self) -> str:
        """Start of EM of latent classes, where the model has them, as `pmflib.fit_em` knows it."""
        return "auto" if self.model.method in SAMPLE_METHODS else self.model.method

    @property
    def start_method(self) -> str:
        """Method of the first start: of an average, one that can make more."""
        is_average = self.em.members > 1 and self.class_method == "auto"
        return "pairs" if is_average else self.class_method

    @property
    def start_choice(self) -> MethodChoice:
        """Method of the first start, with its options if any are given, as `pmflib.fit` takes it."""
        # those of traits are not those of a start
        options = {} if self.model.method in SAMPLE_METHODS else self.model.method_options
        return {"name": self.start_method, **options} if options else self.start_method

    @property
    def digest(self) -> str:
        """SHA-256 of what can change the result; where a pipeline is and runs cannot."""
        unused = {name for name, each in self.sections.items() if not each.changes_results}
        content = self.model_dump(
            mode="json", by_alias=True, exclude={"cluster", "base", "file", *unused}
        )
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def shorten_rank_choice(self) -> CoreConfig:
        """The same pipeline with little time for the choice of the rank, or with a short ladder."""
        changes = {"rank_budget": QUICK, "effort": "quick"}
        return self.model_copy(update={"model": self.model.model_copy(update=changes)})

    def resolve(self, path: str) -> str:
        """Path as seen from the configuration file; URLs and absolute paths stay as they are."""
        return path if "://" in path else str(Path(self.base) / path)

    def resolve_source(self, path: str) -> str:
        """Path or glob of raw files as seen from the configuration file: the name of its folder is no wildcard."""
        return path if "://" in path else str(Path(escape_text(self.base)) / path)

    @property
    def source_paths(self) -> tuple[str, ...]:
        """Paths and globs of the raw files as seen from the configuration file."""
        paths = self.source.path
        return tuple(map(self.resolve_source, (paths,) if isinstance(paths, str) else paths))

    @property
    def dataset_options(self) -> DatasetOptions:
        """What the dataset of the pipeline is built from, and how it is split."""
        return DatasetOptions(
            self.source,
            self.schema_,
            self.source_paths,
            self.store.folds,
            self.store.buckets,
            self.window.days,
        )

    @property
    def fold_split(self) -> FoldSplit:
        """Folds of the store: which train, which choose, which test."""
        held_out = self.evaluate.validation_folds, self.evaluate.test_folds
        return split_folds(self.store.folds, *held_out)


SECTIONS: dict[str, Any] = {
    key: place.load() for feature in FEATURES for key, place in feature.section.items()
}
"""Classes of the sections of features, by key."""


def _make_field(section: Any) -> Any:
    if issubclass(section, Section):
        return section, section()
    # a table without options of its own stands among the options without a section
    return section, Field(
        default_factory=section, description=" ".join((section.__doc__ or "").split())
    )


if TYPE_CHECKING:
    PipelineConfig = CoreConfig
else:
    PipelineConfig = create_model(
        "PipelineConfig",
        __base__=CoreConfig,
        __module__=__name__,
        __doc__="Configuration of a pipeline: the sections of ``pipeline.toml``.",
        **{key: _make_field(section) for key, section in SECTIONS.items()},
    )


def draft_name(folder: Path) -> str:
    """Draft the name of a pipeline from the name of its folder; "pipeline" if that has no letter or digit.

    Examples
    --------
    >>> draft_name(Path("/data/Ratings (2026)"))
    'Ratings -2026'
    """
    name = re.sub(r"[^\w .-]+", "-", folder.resolve().name).strip(" .-")
    name = name.encode()[:MAX_NAME].decode(errors="ignore").strip(" .-")
    return name if re.match(r"\w", name) else "pipeline"


def check_target(config: PipelineConfig, schema: Schema) -> Schema:
    """Refuse a configuration whose target is no variable of the schema; give the schema back.

    Raises
    ------
    ConfigError
        If the variable that the model is to predict is not in the schema: the error names those of similar names.
    """
    if config.em.target is not None:
        try:
            schema.position(config.em.target)
        except SchemaError as error:
            raise ConfigError(
                f"em.target = {config.em.target!r}: {error}; correct it, or remove it for all variables alike"
            ) from None
    return schema
