"""Command that takes samples out of a store: erase."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pmflib.core.errors import ConfigError
from pmflib_flows.console import AsJson, ConfigPath, load_pipeline, out, print_json

if TYPE_CHECKING:
    from pmflib.store.artefacts import Store


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
        Path | None, typer.Option(help="Text file with an identifier in each line, UTF-8.")
    ] = None,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget", help="Take them off the list of erased samples: raw rows are read again."
        ),
    ] = False,
    find: Annotated[
        bool,
        typer.Option(
            "--find",
            help="Erase nothing: list the lines in quarantine, on pages and in files outside that mention them.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Erase samples, tasks or workers from the whole store, and exclude them from later runs.

    Without identifiers, finish an erasure that was interrupted.
    """
    from pmflib_flows.erasure_tables import show_certificate
    from pmflib_tasks.erase import erase as erase_from_pipeline
    from pmflib_tasks.operations.erasure import removal
    from pmflib_tasks.operations.erasure.label_logs import holds_labels
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
        raise ConfigError("--find and --forget are two things to do; give one of them")
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
    if of_labels or (not samples and holds_labels(store)):
        certificate = removal.erase_labels(store, task or [], worker or [])
    else:
        certificate = erase_from_pipeline(checked, samples)
    if as_json:
        print_json(asdict(certificate))
    else:
        show_certificate(certificate, str(config))


def _find(store: Store, identifiers: list[str], as_json: bool) -> None:
    """List the lines that mention some identifiers."""
    from pmflib_flows.erasure_tables import show_mentions
    from pmflib_tasks.operations.erasure.mentions import find_mentions

    if not any(each.strip() for each in identifiers):
        raise ConfigError(
            "nothing to find; give --sample or --file, of a label log --task or --worker"
        )
    found = find_mentions(store, identifiers)
    if as_json:
        print_json([asdict(each) for each in found])
    else:
        show_mentions(found)


def _read_lines(path: Path) -> list[str]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--file {str(path)!r} cannot be read ({error}); give a text file, UTF-8"
        ) from error
    return [line for line in lines if line.strip()]
