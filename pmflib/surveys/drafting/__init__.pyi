"""Drafts of schemas: variables proposed from the values of columns, for a person to review."""

from pmflib.surveys.drafting.column_meaning import find_identifier as find_identifier
from pmflib.surveys.drafting.column_meaning import find_times as find_times
from pmflib.surveys.drafting.drafted_schema import DraftedSchema as DraftedSchema
from pmflib.surveys.drafting.drawn_rows import draw_rows as draw_rows
from pmflib.surveys.drafting.schema_draft import draft_schema as draft_schema
from pmflib.surveys.drafting.schema_draft import note_columns as note_columns
from pmflib.surveys.drafting.table_draft import list_names as list_names
from pmflib.surveys.drafting.table_draft import propose_variables as propose_variables
