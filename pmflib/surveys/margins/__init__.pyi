"""Known margins: samples, counts and models raked to them."""

from pmflib.surveys.margins.margins import read_margins as read_margins
