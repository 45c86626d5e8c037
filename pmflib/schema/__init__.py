"""Variables and schema: names, levels, cardinalities, and how raw values become codes."""

from pmflib.schema.schema import Schema
from pmflib.schema.variable import MISSING, Variable

__all__ = ["MISSING", "Schema", "Variable"]
