"""Errors and warnings. Every message names the argument, its value, the limit and the remedy."""

from __future__ import annotations


class PmfError(ValueError):
    """Base of every error that a user of pmflib can correct."""


class SchemaError(PmfError):
    """Data, a variable or a level does not fit the schema."""


class ConfigError(PmfError):
    """A pipeline configuration is incomplete or contradicts itself."""


class SourceError(PmfError):
    """A raw file cannot be read: missing, empty, truncated, of another format."""


class MisrememberedError(SourceError):
    """A store remembers another digest of a raw file than it has, and the file has not changed: it is forgotten."""


class UnreachableError(SourceError):
    """A source does not answer at the moment: to try again may help."""


class ClusterError(PmfError):
    """Workers are not there: no scheduler answers, none has a worker, or tasks end those that they run on."""


class LostSchedulerError(ClusterError):
    """A scheduler, or all of its workers, have gone while in use: another attempt waits for them to come back."""


class StoreError(PmfError):
    """An artefact is missing, damaged, or not what its manifest entry says."""


class RefusedStoreError(ConfigError, StoreError):
    """A store in a bucket cannot be used with this environment: it is not there, or refuses the requests."""


class UnreachableStoreError(StoreError, UnreachableError):
    """A store in a bucket does not answer at the moment: to try again may help."""


class MemoryPlanError(PmfError):
    """A computation would not fit in the memory it may use."""


class QualityError(PmfError):
    """A guard of quality held a run back: the rows or their distributions are not what the configuration allows."""


class RankError(PmfError):
    """The rank is outside what the variables and their counts can carry."""


class QuestionError(PmfError):
    """A question in words cannot be read, or asks for what cannot be: lines that show the text and the position."""


class UnknownNameError(SchemaError, QuestionError):
    """A question in words names a variable or a level that the schema has not."""


class ConvergenceWarning(UserWarning):
    """An iteration stopped at its limit of steps, before its tolerance was met."""


class SchemaWarning(UserWarning):
    """Something of a table is not taken as it stands: columns that are no variables, labels that are spelled alike."""


class RankWarning(UserWarning):
    """More latent states are asked for than there are samples."""


class IdentificationWarning(UserWarning):
    """Samples do not determine some parameters of a model, or it is not where they are most likely."""


class StoreWarning(UserWarning):
    """Work in a store was killed, and what it left there is cleared away."""


class ClusterWarning(UserWarning):
    """A run waits for workers, or for their scheduler."""
