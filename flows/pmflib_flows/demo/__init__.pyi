"""Demonstrations on drawn data: the command and its runs."""

from pmflib_flows.demo.feature import FEATURE as FEATURE
