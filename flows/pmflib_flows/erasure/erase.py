"""Command that erases samples from a store: erase."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pmflib.base.display.summary import DIGITS
from pmflib.base.errors import ConfigError
from pmflib.base.texts import show_text
from pmflib_flows.console import AsJson, ConfigPath, load_pipeline, out, print_json
from pmflib_flows.tables import make_table

if TYPE_CHECKING:
    from pmflib.store.artefacts import Store
    from pmflib_tasks.config import PipelineConfig
    from pmflib_tasks.erasure.certificates import (
        Certificate,
        ErasureState,
        WrittenOutside,
    )
    from pmflib_tasks.erasure.mentions import Mention
    from pmflib_tasks.holdings import RawFile
    from pmflib_tasks.sections import StatusPart

FILES_SHOWN = 10
"""Maximum number of raw files listed; `--json` has all."""
MENTIONS_SHOWN = 50
"""Maximum number of listed lines that mention an identifier; `--json` has all."""


def erase(
    config: ConfigPath,
    sample: Annotated[
        list[str] | None, typer.Option(help="Identifier of a sample; may be given several times.")
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(help="Identifier of a task of a label log; may be given several times."),
    ] = None,
    worker: Annotated[
        list[str] | None,
        typer.Option(help="Identifier of a worker of a label log; may be given several times."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="Text file with one identifier per line, UTF-8.")
    ] = None,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget",
            help="Remove them from the list of erased samples, so that raw rows are read again.",
        ),
    ] = False,
    find: Annotated[
        bool,
        typer.Option(
            "--find",
            help="Erase nothing; list the lines in quarantine, report pages and exported files that mention them.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Erase samples, tasks or workers from the whole store, and exclude them from later runs.

    Without identifiers, complete an interrupted erasure.
    """
    from pmflib_tasks.erasure import removal
    from pmflib_tasks.erasure.erase import erase as erase_from_pipeline
    from pmflib_tasks.holdings import find_log
    from pmflib_tasks.stage import open_store

    checked = load_pipeline(config)
    if checked.source.sample is None:
        raise ConfigError(
            "source.sample is not set: the samples of this pipeline have no identifiers to erase them by; take their "
            "rows out of the raw files, and delete the store"
        )
    store = open_store(checked)
    samples = [*(sample or []), *(_read_lines(file) if file else [])]
    of_labels = [*(task or []), *(worker or [])]
    if samples and of_labels:
        raise ConfigError("--sample and --file go without --task and --worker: one store, one log")
    if find and forget:
        raise ConfigError("--find and --forget are two things to do; pass one of them")
    if find:
        _find(store, [*samples, *of_labels], as_json)
        return
    if forget:
        samples += of_labels
        n_known = removal.forget(store, samples)
        if as_json:
            print_json({"forgotten": n_known})
        else:
            out.print(
                f"{n_known:,} of {len(samples):,} were on the list; the next run reads all raw files again"
            )
        return
    if of_labels or (not samples and find_log(store) is not None):
        certificate = removal.erase_log(store, task or [], worker or [])
    else:
        certificate = erase_from_pipeline(checked, samples)
    if as_json:
        print_json(asdict(certificate))
    else:
        _show_certificate(certificate, str(config))


def _find(store: Store, identifiers: list[str], as_json: bool) -> None:
    """List the lines that mention one of the identifiers."""
    from pmflib_tasks.erasure.mentions import find_mentions

    if not any(each.strip() for each in identifiers):
        raise ConfigError(
            "nothing to find; give --sample or --file, of a label log --task or --worker"
        )
    found = find_mentions(store, identifiers)
    if as_json:
        print_json([asdict(each) for each in found])
    else:
        _show_mentions(found)


def _read_lines(path: Path) -> list[str]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--file {str(path)!r} cannot be read ({error}); pass a text file, UTF-8"
        ) from error
    return [line for line in lines if line.strip()]


def _show_certificate(certificate: Certificate, config: str) -> None:
    """Print the changes of an erasure, and what remains."""
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
    for line in _describe_raw_files(certificate.raw_files):
        out.print(line)
    out.print("")
    _show_written_outside(certificate.written_outside)
    out.print(_describe_free_text(certificate))


def _show_written_outside(written: list[WrittenOutside]) -> None:
    """Print the files written outside a store, as far as the store knows; further copies are unknown."""
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


def _describe_free_text(certificate: Certificate) -> str:
    """Describe whether free text of others was searched, and the result."""
    if certificate.mentions_in_store is None:
        return (
            "Free text of others (rows in quarantine, pages, files outside) was not searched: this call was not given "
            "all identifiers. `pmf erase CONFIG --find` with these lists the lines."
        )
    return (
        f"Free text of others was searched: {certificate.mentions_in_store:,} lines of the store mention one of these "
        "identifiers, and stay. `pmf erase CONFIG --find` with these lists them."
    )


def _show_mentions(found: list[Mention]) -> None:
    """Print the lines that mention one of the identifiers."""
    rows = [[each.location, each.row, each.text] for each in found[:MENTIONS_SHOWN]]
    if rows:
        title = "Lines that mention an identifier"
        out.print(make_table(title, ("where", "row or line", "text"), rows))
    more = f", {len(found) - len(rows):,} of them not shown" if len(found) > len(rows) else ""
    out.print(
        f"{len(found):,} lines in quarantine, on pages and in files outside mention one{more}"
    )


def describe_erasure_state(state: ErasureState) -> list[str]:
    """Describe the erasures of a store; empty if there were none."""
    if not state.samples and not state.unfinished:
        return []
    lines = [f"Erased samples: {state.samples:,}"]
    if state.unfinished:
        lines.append("An erasure has not been finished; `pmf erase CONFIG` finishes it")
    return [*lines, *_describe_raw_files(state.raw_files)]


def _describe_raw_files(files: list[RawFile]) -> list[str]:
    """Describe which raw files still hold erased samples."""
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


def find_erasure_status(config: PipelineConfig, store: Store) -> StatusPart:
    """Find the erasures of a store."""
    from pmflib_tasks.erasure.certificates import describe_erasures
    from pmflib_tasks.sections import Section, StatusPart

    state = describe_erasures(store)
    said = Section("erasures", sentences=tuple(describe_erasure_state(state)))
    return StatusPart({"erased": asdict(state)}, [said])
