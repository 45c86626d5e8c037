"""Certificates of erasure as text."""

from __future__ import annotations

from pmflib.operations.erasure.certificates import Certificate, ErasureState, RawFile
from pmflib_flows.console import out
from pmflib_flows.run_tables import DIGITS
from pmflib_flows.tables import make_table

FILES_SHOWN = 10
"""Raw files that are listed, at most; `--json` has all."""
NOT_SEARCHED = (
    "Not searched: files that were written outside the store (reports, scores, exports of the quarantine), and rows of "
    "others whose texts mention these samples."
)
"""What an erasure leaves to a person."""


def show_certificate(certificate: Certificate, config: str) -> None:
    """Print what an erasure has touched, and what remains."""
    asked, found = len(certificate.samples), certificate.samples_found
    out.print(f"Erasure {certificate.erasure}, started {certificate.started}")
    out.print(
        f"{found:,} of {asked:,} samples were in the store as samples, predictions, answers, tasks or workers."
    )
    columns = ("kind", "rows taken out", "written again", "deleted")
    rows = [
        [kind, each.rows, each.rewritten, each.deleted]
        for kind, each in sorted(certificate.artefacts.items())
    ]
    out.print(make_table("Artefacts", columns, rows))
    models = certificate.models_fitted_before
    if models:
        out.print("")
        out.print(
            "Models that were fitted before stay; they hold probabilities, and no sample. "
            f"`pmf run {config}` fits a new one from scratch:"
        )
    for each in models:
        runs = ", ".join(map(str, each.runs))
        live = ", live" if each.live else ""
        out.print(f"  model {each.model[:DIGITS]} of {each.pipeline}, run {runs}{live}")
    out.print("")
    for line in describe_raw_files(certificate.raw_files):
        out.print(line)
    out.print("")
    out.print(NOT_SEARCHED)


def describe_erasure_state(state: ErasureState) -> list[str]:
    """Say what a store remembers of its erasures; nothing where there were none."""
    if not state.samples and not state.unfinished:
        return []
    lines = [f"Erased samples: {state.samples:,}"]
    if state.unfinished:
        lines.append("An erasure has not been finished; `pmf erase CONFIG` finishes it")
    return [*lines, *describe_raw_files(state.raw_files)]


def describe_raw_files(files: list[RawFile]) -> list[str]:
    """Say which raw files still hold erased samples."""
    if not files:
        return ["No raw file of the last run holds them any more."]
    lines = [
        "Raw sources are yours: remove the rows of erased samples from these files; the pipeline passes over them "
        "until then:"
    ]
    lines += [f"  {each.name}: {each.rows:,} rows" for each in files[:FILES_SHOWN]]
    if len(files) > FILES_SHOWN:
        lines.append(f"  and {len(files) - FILES_SHOWN} more")
    return lines
