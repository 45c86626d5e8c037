"""Nights with planted accidents through the whole pipeline: what guards make of each.

    python -m benchmarks.pipeline.accidents

delivers a rating log for 18 nights, a survey for 12, and for 30 a rating log whose people return, a file a night. On
some nights something goes wrong; the night after, it is put right. Prints a line per night: the accident, guards that
crossed a limit, how the run ended, and the exit code of `pmf run`. Fails if an accident goes unnoticed, a healthy night
is held back, or the live model changes on a night that was held back. `--pipeline labels` runs ten label logs instead,
of ten healthy nights and one on which new workers give three random labels in five.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.pipeline.simulated_nights import (
    DAY,
    Generator,
    LabelLog,
    ReturningLog,
    make_rating_log,
    make_returning_log,
    make_survey,
    write_answers,
    write_ratings,
)
from pmflib.base.arrays import IntArray
from pmflib.base.errors import PmfError
from pmflib.store.artefacts import Store
from pmflib.store.run_records import find_live, list_records
from pmflib_tasks.facts import RunFacts

SETTINGS = """
[model]
rank = 2
[store]
folds = 8
[em]
max_passes = 3
pseudo_count = 1.0
[cluster]
workers = 1
"""
"""Sections of the configuration after the source."""


@dataclass
class Home:
    """A pipeline under test: its folder, its generator, and what was delivered.

    Parameters
    ----------
    folder
        Holds the configuration, ``data`` and ``store``.
    generator
        Draws the nights.
    rng
        Source of randomness.
    """

    folder: Path
    generator: Generator | ReturningLog
    rng: np.random.Generator

    def find_path(self, night: int) -> Path:
        """File of a night."""
        return self.folder / "data" / f"night-{night:02}.csv"

    def write(self, codes: IntArray, night: int, **how: object) -> str:
        """Text of a night's file."""
        if isinstance(self.generator, ReturningLog):
            return self.generator.write(codes, **how)  # type: ignore[arg-type]
        if self.generator.layout == "wide":
            return write_answers(self.generator, codes)
        return write_ratings(self.generator, codes, night, **how)  # type: ignore[arg-type]


Accident = Callable[[Home, int, IntArray], None]
"""Delivers a night's samples with an accident."""


def scale_to_hundred(home: Home, night: int, codes: IntArray) -> None:
    """Ratings are delivered as 20 to 100."""
    text = home.write(codes, night, write_level=lambda level: str(20 * (level + 1)))
    home.find_path(night).write_text(text, "utf-8")


def reverse_scale(home: Home, night: int, codes: IntArray) -> None:
    """Ratings are delivered as 6 less the rating."""
    text = home.write(codes, night, write_level=lambda level: str(5 - level))
    home.find_path(night).write_text(text, "utf-8")


def reverse_earlier(home: Home, night: int, codes: IntArray) -> None:
    """Four earlier files are delivered again upside down, and nothing else is."""
    flip = str.maketrans("12345", "54321")
    for path in sorted((home.folder / "data").glob("night-*.csv"))[:4]:
        lines = path.read_text("utf-8").splitlines()
        rows = [line.split(",") for line in lines[1:]]
        reversed_rows = [",".join([*row[:2], row[2].translate(flip), row[3]]) for row in rows]
        path.write_text("\n".join([lines[0], *reversed_rows]) + "\n", "utf-8")


def swap_columns(home: Home, night: int, codes: IntArray) -> None:
    """People and films exchange their columns; or the third and the eighth question of a survey."""
    if home.generator.layout == "wide":
        codes = codes.copy()
        codes[:, [2, 7]] = codes[:, [7, 2]]
        home.find_path(night).write_text(home.write(codes, night), "utf-8")
    else:
        home.find_path(night).write_text(home.write(codes, night, swap=True), "utf-8")


def deliver_half(home: Home, night: int, codes: IntArray) -> None:
    """The file is cut in the middle."""
    text = home.write(codes, night)
    home.find_path(night).write_text(text[: len(text) // 2], "utf-8")


def duplicate_file(home: Home, night: int, codes: IntArray) -> None:
    """The file is delivered twice."""
    for path in (home.find_path(night), home.find_path(night).with_suffix(".copy.csv")):
        path.write_text(home.write(codes, night), "utf-8")


def deliver_nothing(home: Home, night: int, codes: IntArray) -> None:
    """No file comes."""


def deliver_header(home: Home, night: int, codes: IntArray) -> None:
    """A file with nothing but its header comes."""
    home.find_path(night).write_text(home.write(codes[:0], night), "utf-8")


def write_latin(home: Home, night: int, codes: IntArray) -> None:
    """The file is Latin-1."""
    home.find_path(night).write_bytes(home.write(codes, night).encode("latin-1"))


def write_utf16(home: Home, night: int, codes: IntArray) -> None:
    """The file is UTF-16."""
    home.find_path(night).write_bytes(home.write(codes, night).encode("utf-16"))


def drift(home: Home, night: int, codes: IntArray) -> None:
    """Other people answer."""
    assert isinstance(home.generator, Generator)
    other = home.generator.draw(home.rng, drift=True)
    home.find_path(night).write_text(home.write(other, night), "utf-8")


def lose_file(home: Home, night: int, codes: IntArray) -> None:
    """An earlier file is gone."""
    home.find_path(night).write_text(home.write(codes, night), "utf-8")
    home.find_path(2).unlink()


def empty_column(home: Home, night: int, codes: IntArray) -> None:
    """A question has no answers."""
    codes = codes.copy()
    codes[:, 4] = -1
    home.find_path(night).write_text(home.write(codes, night), "utf-8")


def lose_everything(home: Home, night: int, codes: IntArray) -> None:
    """All files hold nothing but their header."""
    header = home.write(codes[:0], night)
    home.find_path(night).write_text(header, "utf-8")
    for path in (home.folder / "data").glob("*.csv"):
        path.write_text(header, "utf-8")


def deliver_later(home: Home, night: int, rows: IntArray) -> None:
    """Times are ten years ahead."""
    rows = rows + np.array([0, 0, 0, 3650 * DAY])
    home.find_path(night).write_text(home.write(rows, night), "utf-8")


def deliver_one_later(home: Home, night: int, rows: IntArray) -> None:
    """Times of a fiftieth of the rows are ten years ahead."""
    rows = rows.copy()
    rows[::50, 3] += 3650 * DAY
    home.find_path(night).write_text(home.write(rows, night), "utf-8")


def deliver_earlier(home: Home, night: int, rows: IntArray) -> None:
    """Times are twenty years behind."""
    rows = rows - np.array([0, 0, 0, 7300 * DAY])
    home.find_path(night).write_text(home.write(rows, night), "utf-8")


def write_milliseconds(home: Home, night: int, rows: IntArray) -> None:
    """Times are in milliseconds."""
    rows = rows * np.array([1, 1, 1, 1000])
    home.find_path(night).write_text(home.write(rows, night), "utf-8")


def pad_people(home: Home, night: int, rows: IntArray) -> None:
    """Identifiers are padded with zeros."""
    text = home.write(rows, night, name=lambda person: f"{1 + person:08}")
    home.find_path(night).write_text(text, "utf-8")


def shift_people(home: Home, night: int, rows: IntArray) -> None:
    """The column of people is shifted by a row."""
    rows = rows.copy()
    rows[:, 0] = np.roll(rows[:, 0], 1)
    home.find_path(night).write_text(home.write(rows, night), "utf-8")


def shift_ratings(home: Home, night: int, rows: IntArray) -> None:
    """The column of ratings is shifted by a row; of a wide file or a log of people, by a person."""
    rows = rows.copy()
    if isinstance(home.generator, ReturningLog):
        rows[:, 2] = np.roll(rows[:, 2], 1)
    else:
        # every column but the first half stays with its row
        half = rows.shape[1] // 2
        rows[:, :half] = np.roll(rows[:, :half], 1, axis=0)
    home.find_path(night).write_text(home.write(rows, night), "utf-8")


def rename_people(home: Home, night: int, rows: IntArray) -> None:
    """The night comes twice, the second time with other identifiers."""
    home.find_path(night).write_text(home.write(rows, night), "utf-8")
    text = home.write(rows + np.array([1_000_000, 0, 0, 0]), night)
    home.find_path(night).with_suffix(".again.csv").write_text(text, "utf-8")


def sort_earlier(home: Home, night: int, rows: IntArray) -> None:
    """An earlier file comes in another order, as that of the night, which does not."""
    header, *lines = home.find_path(4).read_text("utf-8").splitlines()
    text = "\n".join([header, *sorted(lines)]) + "\n"
    home.find_path(night).write_text(text, "utf-8")


def deliver_staging(home: Home, night: int, rows: IntArray) -> None:
    """The night's rows are of people of another system, numbered from 1 as well."""
    rows = rows.copy()
    people = np.unique(rows[:, 0])
    rows[:, 0] = np.searchsorted(people, rows[:, 0])
    home.find_path(night).write_text(home.write(rows, night), "utf-8")


def deliver_tests(home: Home, night: int, rows: IntArray) -> None:
    """A third of the rows are of people who test the system."""
    people = set(np.unique(rows[:, 0])[::3].tolist())
    text = home.write(
        rows, night, name=lambda person: f"test-{person}" if person in people else str(1 + person)
    )
    home.find_path(night).write_text(text, "utf-8")


PLANS: dict[str, tuple[int, dict[int, Accident]]] = {
    "ratings": (
        18,
        {
            5: deliver_nothing,
            7: scale_to_hundred,
            8: reverse_scale,
            10: swap_columns,
            11: deliver_half,
            12: duplicate_file,
            13: write_latin,
            14: write_utf16,
            15: reverse_earlier,
            16: lose_everything,
            17: deliver_header,
        },
    ),
    "survey": (
        12,
        {
            6: swap_columns,
            7: deliver_half,
            8: duplicate_file,
            9: drift,
            10: empty_column,
            11: lose_file,
        },
    ),
    "returning": (
        30,
        {
            9: deliver_later,
            11: deliver_one_later,
            12: write_milliseconds,
            14: deliver_earlier,
            16: pad_people,
            17: shift_people,
            19: shift_ratings,
            20: rename_people,
            22: sort_earlier,
            24: deliver_staging,
            26: deliver_tests,
        },
    ),
}
"""Nights of each pipeline, and the accident of some of them."""
GENERATORS: dict[str, Callable[[int], Generator | ReturningLog]] = {
    "ratings": make_rating_log,
    "survey": make_survey,
    "returning": make_returning_log,
}
"""What draws the nights of each pipeline."""


@dataclass(frozen=True)
class Outcome:
    """How one night ended.

    Parameters
    ----------
    pipeline, night, accident
        Which night; no accident is "".
    guards
        Guards that crossed a limit.
    outcome, code
        Outcome in the record of the run, and exit code of the command.
    held
        Whether the live model is the one before.
    """

    pipeline: str
    night: int
    accident: str
    guards: tuple[str, ...]
    outcome: str
    code: int
    held: bool

    @property
    def is_noticed(self) -> bool:
        """Whether the run was held back, failed with a reason, or warned."""
        return bool(self.guards) or self.code in (3, 6)

    @property
    def is_right(self) -> bool:
        """Whether an accident was noticed, or a healthy night was not held back; held back, the live model stays."""
        right = self.is_noticed if self.accident else self.code == 0
        return right and (self.code == 0 or self.held)


def main() -> None:
    """Run the nights and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pipeline", choices=[*PLANS, "labels"], action="append")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        outcomes = [
            outcome
            for pipeline in options.pipeline or PLANS
            for run in [run_label_nights if pipeline == "labels" else run_nights]
            for outcome in run(Path(name) / pipeline, pipeline, options.seed)
        ]
    print("pipeline  night  accident            exit  outcome      guards")
    for each in outcomes:
        wrong = "" if each.is_right else "   <- WRONG"
        print(
            f"{each.pipeline:9} {each.night:5}  {each.accident:18}  {each.code:4}  {each.outcome:11}  "
            f"{', '.join(each.guards)}{wrong}"
        )
    for kind, nights in (
        ("accidents", [each for each in outcomes if each.accident]),
        ("healthy nights", [each for each in outcomes if not each.accident]),
    ):
        print(f"{sum(each.code > 0 for each in nights)} of {len(nights)} {kind} stopped")
    if not all(each.is_right for each in outcomes):
        raise SystemExit("an accident went unnoticed, or a healthy night was held back")


def run_nights(folder: Path, pipeline: str, seed: int) -> list[Outcome]:
    """Run the nights of one pipeline."""
    n_nights, accidents = PLANS[pipeline]
    generator = GENERATORS[pipeline](seed)
    home = Home(folder, generator, np.random.default_rng([seed, 3]))
    (folder / "data").mkdir(parents=True)
    generator.schema.save(folder / "schema.json")
    columns = {"sample": "person", "variable": "film", "value": "stars", "time": "time"}
    layout = {"layout": generator.layout, **(columns if generator.layout == "long" else {})}
    source = "".join(f'{name} = "{value}"\n' for name, value in ({"path": "data"} | layout).items())
    (folder / "pipeline.toml").write_text(f"[source]\n{source}{SETTINGS}", "utf-8")
    outcomes, good = list[Outcome](), dict[str, bytes]()
    for night in range(1, n_nights + 1):
        # what went wrong is put right before the next delivery
        for path in (folder / "data").glob("*.csv"):
            path.unlink()
        for name, content in good.items():
            (folder / "data" / name).write_bytes(content)
        codes = generator.draw(home.rng)
        good[home.find_path(night).name] = home.write(codes, night).encode()
        accident = accidents.get(night)
        if accident is None:
            home.find_path(night).write_bytes(good[home.find_path(night).name])
        else:
            accident(home, night, codes)
        name = "" if accident is None else accident.__name__
        # whoever takes back rows that went live accepts that they are gone; an accident is never accepted
        went_live = outcomes and outcomes[-1].accident and not outcomes[-1].code
        accepts = accident is None and bool(went_live)
        outcomes.append(run_night(folder, pipeline, night, name, accepts))
    return outcomes


def run_label_nights(folder: Path, pipeline: str, seed: int) -> list[Outcome]:
    """Run the nights of ten label logs."""
    outcomes = []
    for log_seed in range(seed, seed + 10):
        home, log, rng = folder / str(log_seed), LabelLog(), np.random.default_rng([log_seed, 3])
        (home / "data").mkdir(parents=True)
        columns = 'sample = "task"\nvariable = "worker"\nvalue = "label"\n'
        source = f'[source]\npath = "data"\nlayout = "long"\n{columns}[model]\nrank = 1\n'
        (home / "pipeline.toml").write_text(source, "utf-8")
        for night in range(1, 12):
            path = home / "data" / f"night-{night:02}.csv"
            path.write_text(log.draw(rng, guess=night == 6), "utf-8")
            outcomes.append(run_night(home, pipeline, night, "guess" if night == 6 else ""))
            if night == 6:
                path.unlink()
    return outcomes


def run_night(
    folder: Path, pipeline: str, night: int, accident: str, accepts: bool = False
) -> Outcome:
    """Run the pipeline once, and read its record."""
    from pmflib_flows.crowd.crowd_flow import crowd_flow
    from pmflib_flows.etl import etl
    from pmflib_flows.exit_codes import find_exit_code

    store, code = Store(folder / "store"), 0
    flow, named = (crowd_flow, "pipeline@labels") if pipeline == "labels" else (etl, "pipeline")
    before = find_live(store, named)
    try:
        flow(str(folder / "pipeline.toml"), accept_quality=accepts)
    except PmfError as error:
        code = find_exit_code(type(error))
    record = list_records(store, named)[-1]
    crossed = [each for each in RunFacts(record.facts).findings if not each.passed]
    # a guard that stops one file may warn of another
    actions = {each.guard: each.action for each in crossed}
    actions |= {each.guard: "stop" for each in crossed if each.action == "stop"}
    guards = tuple(f"{guard} {action}" for guard, action in actions.items())
    return Outcome(pipeline, night, accident, guards, record.outcome, code, record.live == before)


if __name__ == "__main__":
    main()
