"""Which folds train, which choose, which judge."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FoldSplit:
    """Folds for training, for choosing and for the final scores."""

    train: tuple[int, ...]
    validation: tuple[int, ...]
    test: tuple[int, ...]


def split_folds(n_folds: int, n_validation: int, n_test: int) -> FoldSplit:
    """Split folds: the last ones test, those before them validate, the rest train; any may be none but the last."""
    first_test = n_folds - n_test
    first_validation = first_test - n_validation
    return FoldSplit(
        tuple(range(first_validation)),
        tuple(range(first_validation, first_test)),
        tuple(range(first_test, n_folds)),
    )
