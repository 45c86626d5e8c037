"""Variables and schemas: names, levels, cardinalities, and the encoding of raw values."""

from pmflib.schema.schema import Schema
from pmflib.schema.variable import MISSING, Variable

__all__ = ["MISSING", "Schema", "Variable"]
