"""Samples in memory with survey weights or a survey design."""

from __future__ import annotations

from pmflib.core.arrays import IntArray
from pmflib.core.blocks import DenseBlock
from pmflib.core.errors import PmfError
from pmflib.core.survey_design import SurveyDesign
from pmflib.core.weights import read_weights
from pmflib.em.stored_samples import StoredSamples
from pmflib.schema import Schema


def weigh_samples(
    samples: StoredSamples | DenseBlock, weight: object | SurveyDesign | None, schema: Schema
) -> DenseBlock:
    """Attach weights to samples, and the fold order of a design.

    Raises
    ------
    PmfError
        If samples are stored, or the weights are of another number of rows.
    """
    if isinstance(samples, StoredSamples):
        raise PmfError("weight is given and samples are stored; give samples in memory")
    if weight is None:
        return samples
    if isinstance(weight, SurveyDesign):
        return weigh_block(samples.codes, weight)
    weights = read_weights(weight, len(samples), decimals=schema.weight_decimals)
    return DenseBlock(samples.codes, weights.scale())


def weigh_block(codes: IntArray, design: SurveyDesign) -> DenseBlock:
    """Attach the weights and the fold order of a design.

    Raises
    ------
    PmfError
        If the design is of another number of rows.
    """
    if len(codes) != design.n_rows:
        raise PmfError(
            f"samples has {len(codes)} rows, and the design {design.n_rows}; give a design of these rows"
        )
    return DenseBlock(codes, design.weights.scale(), design.dealt)
