"""Variables and schemas: names, levels, cardinalities, and the encoding of raw values."""

from pmflib.schema.file_columns import Code as Code
from pmflib.schema.file_columns import FileColumn as FileColumn
from pmflib.schema.file_columns import declare_levels as declare_levels
from pmflib.schema.intervals import read_interval as read_interval
from pmflib.schema.schema import Schema as Schema
from pmflib.schema.tables import CATEGORIES as CATEGORIES
from pmflib.schema.tables import as_arrow as as_arrow
from pmflib.schema.tables import find_type_fault as find_type_fault
from pmflib.schema.tables import name_columns as name_columns
from pmflib.schema.tables import read_numbers as read_numbers
from pmflib.schema.tables import simplify as simplify
from pmflib.schema.value_counts import ValueCounts as ValueCounts
from pmflib.schema.value_counts import describe_bins as describe_bins
from pmflib.schema.value_counts import find_strays as find_strays
from pmflib.schema.value_counts import make_bins as make_bins
from pmflib.schema.variable import DEFAULT_MISSING as DEFAULT_MISSING
from pmflib.schema.variable import MISSING as MISSING
from pmflib.schema.variable import UNDECODABLE as UNDECODABLE
from pmflib.schema.variable import UNKNOWN as UNKNOWN
from pmflib.schema.variable import Part as Part
from pmflib.schema.variable import Role as Role
from pmflib.schema.variable import Variable as Variable
from pmflib.schema.variable import as_text as as_text
from pmflib.schema.variable import is_absent as is_absent
from pmflib.schema.variable import read_number as read_number
from pmflib.schema.variable import split_answers as split_answers

__all__: list[str]
