"""The report of a run: one HTML page that needs nothing else, for two minutes first, then for an hour."""

from pmflib_tasks.report.data_report import gather_data as gather_data
from pmflib_tasks.report.feature import FEATURE as FEATURE
from pmflib_tasks.report.model_report import list_intervals as list_intervals
from pmflib_tasks.report.page import render_page as render_page
from pmflib_tasks.report.page import write_page as write_page
from pmflib_tasks.report.run_report import gather_report as gather_report
from pmflib_tasks.report.sentences import list_troubles as list_troubles
from pmflib_tasks.report.sentences import summarise_run as summarise_run
