"""Guards of label logs as options of section ``quality``."""

from __future__ import annotations

from pmflib.ingest.options import Section
from pmflib_tasks.guard_limits import GuardLimits, guard


class LabelGuards(Section):
    """Guards of label logs."""

    worker_rows: GuardLimits = guard(
        "check this worker's labels: are they by a script, or by several people?",
        warn=0.2,
        stop=0.5,
    )
    """Label logs: share of a new file's labels by its busiest worker, beyond chance, minus the largest such share of
    any earlier file."""
    unknown_workers: GuardLimits = guard(
        "check the names of the workers: were they written differently before?", warn=0.5, stop=0.9
    )
    """Label logs: share of a new file's labels by workers unknown to the last run, beyond chance."""
    new_classes: GuardLimits = guard(
        "check whether they are misspelt; [crowd] classes lists the valid ones", warn=0
    )
    """Label logs: number of classes that never occurred before."""
    class_shares: GuardLimits = guard(
        "check this file: were its labels exchanged, or coded differently?", warn=0.1, stop=0.25
    )
    """Label logs: lower confidence bound for the population stability index of the labels of a new file against those
    of the last run."""
    label_agreement: GuardLimits = guard(
        "check this file: were its columns shifted, or its labels exchanged?", warn=0.1, stop=0.25
    )
    """Label logs: decrease, beyond chance, of the share of agreeing pairs of labels of a task, for pairs with a new
    label."""
    guesses: GuardLimits = guard(
        "check these workers: do they answer at random, or by a script?", warn=0.05, stop=0.2
    )
    """Label logs: share of the new labels by workers unknown to the last run who agree with others hardly more than by
    chance."""
    copies: GuardLimits = guard(
        "check these workers: are they one person, or one script?", warn=0, stop=0.25
    )
    """Label logs: share of the new labels by workers who agree with one other worker far more than with the rest."""
    time_backwards: GuardLimits = guard("check whether an old file was delivered again", warn=0)
    """Label logs with times: days by which the newest label of a new file precedes the newest of the last run."""
