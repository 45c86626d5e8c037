"""Variables and schemas: names, levels, cardinalities, and the encoding of raw values."""

from pmflib.base.faces import make_face
from pmflib.schema.schema import Schema
from pmflib.schema.variable import MISSING, Variable

__all__ = ["MISSING", "Schema", "Variable"]

__getattr__, __dir__ = make_face(__name__)
