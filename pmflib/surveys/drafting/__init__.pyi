"""Drafts of schemas: variables proposed from the values of columns, for a person to review."""

from pmflib.surveys.drafting.column_meaning import find_identifier as find_identifier
from pmflib.surveys.drafting.column_meaning import find_times as find_times
from pmflib.surveys.drafting.drafted_schema import DraftedSchema as DraftedSchema
from pmflib.surveys.drafting.drawn_rows import draw_rows as draw_rows
from pmflib.surveys.drafting.inference import Wishes as Wishes
from pmflib.surveys.drafting.inference import propose_variable as propose_variable
from pmflib.surveys.drafting.level_order import find_level_order as find_level_order
from pmflib.surveys.drafting.missing_codes import propose_codes as propose_codes
from pmflib.surveys.drafting.schema_draft import draft_schema as draft_schema
from pmflib.surveys.drafting.schema_draft import note_columns as note_columns
from pmflib.surveys.drafting.schema_draft import number_columns as number_columns
from pmflib.surveys.drafting.table_draft import list_names as list_names
from pmflib.surveys.drafting.table_draft import propose_variables as propose_variables
