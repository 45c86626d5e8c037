"""Errors and warnings. Every message gives the argument, its value, the limit and the remedy."""

from __future__ import annotations


class PmfError(ValueError):
    """Base class of all errors that a user of pmflib can correct."""


class MissingMethodError(PmfError, AttributeError):
    """A model lacks a method or an array that models of another family have."""


class SchemaError(PmfError):
    """Data, a variable or a level does not fit the schema."""


class ConfigError(PmfError):
    """A pipeline configuration is incomplete or contradictory."""


class SourceError(PmfError):
    """A raw file cannot be read: missing, empty, truncated, or in another format."""


class MisrememberedError(SourceError):
    """The store has recorded another digest for a raw file that has not changed; the record is deleted."""


class UnreachableError(SourceError):
    """A source does not respond at the moment; retrying may help."""


class ClusterError(PmfError):
    """Workers are unavailable: no scheduler responds, none has a worker, or tasks crash their workers."""


class LostSchedulerError(ClusterError):
    """The scheduler or all of its workers were lost during a run; a retry waits for their return."""


class StoreError(PmfError):
    """An artefact is missing, damaged, or does not match its manifest entry."""


class RefusedStoreError(ConfigError, StoreError):
    """A store in a bucket cannot be used from here: it does not exist, or it rejects requests."""


class UnreachableStoreError(StoreError, UnreachableError):
    """A store in a bucket does not respond at the moment; retrying may help."""


class MemoryPlanError(PmfError):
    """A computation would not fit in the available memory."""


class QualityError(PmfError):
    """A data quality check stopped a run: the rows or their distributions violate the configured limits."""


class RankError(PmfError):
    """The rank is too large or too small for the variables and their counts."""


class QuestionError(PmfError):
    """A question in words cannot be parsed or answered; the message shows the text and the position."""


class UnknownNameError(SchemaError, QuestionError):
    """A question in words names a variable or a level that is not in the schema."""


class ConvergenceWarning(UserWarning):
    """An iteration reached its limit of steps before the tolerance was met."""


class SchemaWarning(UserWarning):
    """Part of a table is not used as it is: columns that cannot be variables, or labels with similar spelling."""


class RankWarning(UserWarning):
    """More latent states are requested than there are samples."""


class IdentificationWarning(UserWarning):
    """Some parameters of a model are not identified, or the estimate is not at the maximum."""


class StoreWarning(UserWarning):
    """A process working on a store was killed, and its remains are deleted."""


class ClusterWarning(UserWarning):
    """A run is waiting for workers or for the scheduler."""
