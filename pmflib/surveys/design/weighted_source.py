"""Samples in memory, with weights or a design, or stored, as the blocks of a pass."""

from __future__ import annotations

from pmflib.base.arrays import check_row_order
from pmflib.base.blocks import DenseBlock
from pmflib.base.errors import PmfError, SchemaError
from pmflib.em.block_source import BlocksInMemory, BlockSource
from pmflib.em.stored_samples import StoredSamples
from pmflib.schema import Schema
from pmflib.surveys.design.survey_design import weigh_samples


def open_source(
    schema: Schema, rank: int, samples: object, weight: object | None = None
) -> BlockSource:
    """Open samples in memory or stored, with their weights, as blocks for models of a rank."""
    if isinstance(samples, StoredSamples):
        if weight is not None:
            weigh_samples(samples, weight, schema.weight_decimals)
        if samples.schema.digest != schema.digest:
            raise SchemaError(
                "samples and model have different schemas; take all from one pipeline"
            )
        return samples
    block = read_samples(schema, samples, weight)
    return BlocksInMemory.cut(block, schema.offsets, rank)


def read_samples(schema: Schema, samples: object, weight: object | None = None) -> DenseBlock:
    """Read samples in memory, at least one, with their weights."""
    codes = schema.encode(samples)
    if not len(codes):
        raise PmfError("samples has no rows; give at least one")
    check_row_order(samples, weight=weight)
    return weigh_samples(DenseBlock(codes), weight, schema.weight_decimals)
