"""Certificates of erasure as text."""

from __future__ import annotations

from pathlib import Path

from pmflib.core.texts import show_text
from pmflib_flows.console import out
from pmflib_flows.run_tables import DIGITS
from pmflib_flows.tables import make_table
from pmflib_tasks.operations.erasure.certificates import (
    Certificate,
    ErasureState,
    RawFile,
    WrittenOutside,
)
from pmflib_tasks.operations.erasure.mentions import Mention

FILES_SHOWN = 10
"""Raw files that are listed, at most; `--json` has all."""
MENTIONS_SHOWN = 50
"""Lines that mention an identifier that are listed, at most; `--json` has all."""


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
    show_written_outside(certificate.written_outside)
    out.print(describe_free_text(certificate))


def show_written_outside(written: list[WrittenOutside]) -> None:
    """Print what a store knows to have been written outside it; copies of that are nobody's knowledge."""
    if not written:
        out.print("The store knows of no file that was written outside it.")
        return
    out.print("Written outside the store, and yours to delete or to write again:")
    for each in written:
        mentions = "" if each.mentions is None else f", {each.mentions:,} lines mention them"
        n_files = f", {len(each.files):,} files" if len(each.files) > 1 else ""
        line = f"  {each.path}: {each.kind}{n_files}, {each.written}, {each.state}{mentions}"
        out.print(show_text(line), soft_wrap=True)
        for path, digest in list(each.files.items())[:FILES_SHOWN]:
            out.print(show_text(f"    SHA-256 {digest} {Path(path).name}"), soft_wrap=True)


def describe_free_text(certificate: Certificate) -> str:
    """Say whether texts of others were searched, and what was found."""
    if certificate.mentions_in_store is None:
        return (
            "Free text of others (rows in quarantine, pages, files outside) was not searched: this call was not given "
            "all identifiers. `pmf erase CONFIG --find` with these lists the lines."
        )
    return (
        f"Free text of others was searched: {certificate.mentions_in_store:,} lines of the store mention one of these "
        "identifiers, and stay. `pmf erase CONFIG --find` with these lists them."
    )


def show_mentions(found: list[Mention]) -> None:
    """Print the lines that mention some identifiers."""
    rows = [[each.location, each.row, each.text] for each in found[:MENTIONS_SHOWN]]
    if rows:
        title = "Lines that mention an identifier"
        out.print(make_table(title, ("where", "row or line", "text"), rows))
    more = f", {len(found) - len(rows):,} of them not shown" if len(found) > len(rows) else ""
    out.print(
        f"{len(found):,} lines in quarantine, on pages and in files outside mention one{more}"
    )


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
