"""Figures of models, fits and counts, by matplotlib (`pip install 'pmflib[plot]'`): a function each, Axes in and out.

The same functions draw the figures of the report. matplotlib is imported when a figure is drawn, and not before.
"""
