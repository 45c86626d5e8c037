"""Accidents of a young pipeline, each on its first nights: what is held back, and by which guard.

    python -m benchmarks.pipeline.young_accidents --nights 3

delivers a few healthy nights of a rating log whose people return, of one whose people are new every night, and of a
survey; then, on copies of each pipeline, one more night with one accident each, and one without. Prints a line per
accident and fails if a healthy night is held back. A folder of ml-100k as argument takes its ratings, in 30 deliveries
by time, in place of the rating log whose people return.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.pipeline.accidents import (
    GENERATORS,
    SETTINGS,
    Accident,
    Home,
    Outcome,
    deliver_half,
    deliver_staging,
    duplicate_file,
    empty_column,
    pad_people,
    rename_people,
    reverse_scale,
    run_night,
    scale_to_hundred,
    shift_people,
    shift_ratings,
    swap_columns,
)
from benchmarks.pipeline.healthy_nights import read_movielens
from benchmarks.pipeline.simulated_nights import DAY, ReturningLog
from pmflib.base.arrays import IntArray


def deliver_well(home: Home, night: int, rows: IntArray) -> None:
    """Nothing is wrong."""
    home.find_path(night).write_text(home.write(rows, night), "utf-8")


def deliver_earlier_again(home: Home, night: int, rows: IntArray) -> None:
    """An earlier file comes again with a hundredth of its rows corrected, beside the night's."""
    deliver_well(home, night, rows)
    lines = home.find_path(2).read_text("utf-8").splitlines()
    for place in range(50, len(lines), 100):
        lines[place] = lines[place - 1].rpartition(",")[0] + "," + lines[place].rpartition(",")[2]
    home.find_path(2).write_text("\n".join(lines) + "\n", "utf-8")


def overwrite_night(home: Home, night: int, rows: IntArray) -> None:
    """The night's rows are written into the file of the night before."""
    home.find_path(night - 1).write_text(home.write(rows, night), "utf-8")


def shrink_earlier(home: Home, night: int, rows: IntArray) -> None:
    """An earlier file has lost a tenth of its rows."""
    deliver_well(home, night, rows)
    lines = home.find_path(2).read_text("utf-8").splitlines()
    kept = [line for place, line in enumerate(lines) if place % 10 != 5]
    home.find_path(2).write_text("\n".join(kept) + "\n", "utf-8")


def change_earlier(home: Home, night: int, rows: IntArray) -> None:
    """A twentieth of the answers of an earlier file has changed."""
    deliver_well(home, night, rows)
    lines = home.find_path(2).read_text("utf-8").splitlines()
    column = slice(2, 3) if home.generator.layout == "long" else slice(0, None)
    for place in range(20, len(lines), 20):
        cells, before = lines[place].split(","), lines[place - 1].split(",")
        cells[column] = before[column]
        lines[place] = ",".join(cells)
    home.find_path(2).write_text("\n".join(lines) + "\n", "utf-8")


def zero_block(path: Path) -> None:
    """Overwrite a twelfth of a file by zeros, as a disk does."""
    content = bytearray(path.read_bytes())
    size = len(content) // 12
    content[len(content) // 2 : len(content) // 2 + size] = bytes(size)
    path.write_bytes(content)


def zero_earlier(home: Home, night: int, rows: IntArray) -> None:
    """An earlier file has a block of zeros in its middle."""
    deliver_well(home, night, rows)
    zero_block(home.find_path(2))


def zero_new(home: Home, night: int, rows: IntArray) -> None:
    """The night's file has a block of zeros in its middle."""
    deliver_well(home, night, rows)
    zero_block(home.find_path(night))


def open_quotation(home: Home, night: int, rows: IntArray) -> None:
    """Two lost quotation marks swallow the rows between them."""
    lines = home.write(rows, night).splitlines()
    for place in (len(lines) // 2, len(lines) // 2 + len(lines) // 12):
        lines[place] = '"' + lines[place] if place == len(lines) // 2 else lines[place] + '"'
    home.find_path(night).write_text("\n".join(lines) + "\n", "utf-8")


def empty_values(home: Home, night: int, rows: IntArray) -> None:
    """A third of the answers are empty."""
    if home.generator.layout == "wide":
        rows = np.where(home.rng.random(rows.shape) < 0.3, -1, rows)
        deliver_well(home, night, rows)
        return
    header, *lines = home.write(rows, night).splitlines()
    cells = [line.split(",") for line in lines]
    for cell in cells[::3]:
        cell[2] = ""
    home.find_path(night).write_text("\n".join([header, *map(",".join, cells)]) + "\n", "utf-8")


def permute_people(home: Home, night: int, rows: IntArray) -> None:
    """Identifiers are permuted among the people of the night."""
    rows = rows.copy()
    people = np.unique(rows[:, 0])
    rows[:, 0] = home.rng.permutation(people)[np.searchsorted(people, rows[:, 0])]
    deliver_well(home, night, rows)


def cut_people(home: Home, night: int, rows: IntArray) -> None:
    """The last digit of identifiers is cut off."""
    text = home.write(rows, night, name=lambda person: str(1 + person)[:-1] or "0")
    home.find_path(night).write_text(text, "utf-8")


def swap_two_films(home: Home, night: int, rows: IntArray) -> None:
    """Two films exchange their names."""
    _rename_films(home, night, rows, [0, 1])


def swap_half_of_films(home: Home, night: int, rows: IntArray) -> None:
    """Half of the films exchange their names."""
    schema = home.generator.schema
    alike = [j for j, each in enumerate(schema) if each.levels == schema[0].levels]
    _rename_films(home, night, rows, alike[::2])


def _rename_films(home: Home, night: int, rows: IntArray, films: object) -> None:
    chosen = np.array(list(films))  # type: ignore[call-overload]
    names = np.arange(home.generator.schema.n_variables)
    names[chosen] = np.roll(chosen, 1)
    rows = rows.copy()
    if isinstance(home.generator, ReturningLog):
        rows[:, 1] = names[rows[:, 1]]
    else:
        rows = rows[:, names]
    deliver_well(home, night, rows)


def add_bots(home: Home, night: int, rows: IntArray) -> None:
    """Three tenths of the night's people answer at random."""
    rows = rows.copy()
    rng, sizes = home.rng, home.generator.schema.cardinalities
    if isinstance(home.generator, ReturningLog):
        people = np.unique(rows[:, 0])
        bots = np.isin(rows[:, 0], rng.choice(people, int(0.3 * people.size), replace=False))
        rows[bots, 2] = rng.integers(sizes[rows[bots, 1]])
    else:
        bots = rng.random(len(rows)) < 0.3
        rows[bots] = np.where(
            rows[bots] < 0, -1, rng.integers(sizes, size=(bots.sum(), sizes.size))
        )
    deliver_well(home, night, rows)


def add_shills(home: Home, night: int, rows: IntArray) -> None:
    """Twelve new people give one film the best mark, and all others the worst."""
    rows = rows.copy()
    n_films = home.generator.schema.n_variables
    if isinstance(home.generator, ReturningLog):
        first = int(rows[:, 0].max()) + 1
        added = [
            [first + shill, film, 4 if film == 3 else 0, int(rows[0, 3])]
            for shill in range(12)
            for film in range(n_films)
        ]
        rows = np.concatenate([rows, np.array(added)])
    else:
        rows[:12] = 0
        rows[:12, 3] = home.generator.schema.cardinalities[3] - 1
    deliver_well(home, night, rows)


def shift_hours(home: Home, night: int, rows: IntArray) -> None:
    """Corrections of the night before come with times of another zone, and lose to what they correct."""
    lines = home.find_path(night - 1).read_text("utf-8").splitlines()[1:]
    corrected = []
    for line in lines[::2]:
        person, film, stars, time = line.split(",")
        corrected.append(f"{person},{film},{int(stars) % 5 + 1},{int(time) - DAY // 24}")
    text = home.write(rows, night) + "\n".join(corrected) + "\n"
    home.find_path(night).write_text(text, "utf-8")


def deliver_superseded(home: Home, night: int, rows: IntArray) -> None:
    """All rows of the night are older than what is known."""
    lines = home.find_path(night - 1).read_text("utf-8").splitlines()
    aged = [line.rpartition(",")[0] + f",{int(line.rpartition(',')[2]) - 60}" for line in lines[1:]]
    home.find_path(night).write_text("\n".join([lines[0], *aged[::2]]) + "\n", "utf-8")


ANY: tuple[Accident, ...] = (
    deliver_well,
    deliver_earlier_again,
    overwrite_night,
    shrink_earlier,
    change_earlier,
    zero_earlier,
    zero_new,
    open_quotation,
    empty_values,
    swap_two_films,
    swap_half_of_films,
    shift_ratings,
    add_bots,
    add_shills,
    deliver_half,
    duplicate_file,
)
OF_RETURNING: tuple[Accident, ...] = (
    permute_people,
    cut_people,
    deliver_staging,
    shift_people,
    shift_hours,
    deliver_superseded,
    pad_people,
    rename_people,
)
ACCIDENTS: dict[str, tuple[Accident, ...]] = {
    "returning": (*ANY, *OF_RETURNING),
    "ratings": (*ANY, scale_to_hundred, reverse_scale, swap_columns),
    "survey": (*ANY, empty_column, swap_columns),
}
HEALTHY = (deliver_well, deliver_earlier_again)


def main() -> None:
    """Run the nights and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ml100k", type=Path, nargs="?", help="folder of ml-100k")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nights", type=int, default=3, help="healthy nights before")
    parser.add_argument("--pipeline", choices=list(ACCIDENTS), action="append")
    parser.add_argument("--accident", action="append", default=[])
    options = parser.parse_args()
    outcomes = []
    with tempfile.TemporaryDirectory() as name:
        for pipeline in options.pipeline or ACCIDENTS:
            home = Home(
                Path(name) / pipeline,
                GENERATORS[pipeline](options.seed),
                np.random.default_rng([options.seed, 4]),
            )
            if pipeline == "returning" and options.ml100k is not None:
                home.generator = Replayed(*read_movielens(options.ml100k, 30, by="rows"))
            chosen = [
                each
                for each in ACCIDENTS[pipeline]
                if not options.accident or each.__name__ in options.accident
            ]
            for outcome in run_young(home, pipeline, options.nights, chosen):
                outcomes.append(outcome)
                seen = "" if outcome.code or outcome.accident in names(HEALTHY) else "   <- UNSEEN"
                if outcome.code and outcome.accident in names(HEALTHY):
                    seen = "   <- FALSE ALARM"
                print(
                    f"{pipeline:9}  {outcome.accident:21}  {outcome.code:4}  {outcome.outcome:11}  "
                    f"{', '.join(outcome.guards)}{seen}",
                    flush=True,
                )
    accidents = [each for each in outcomes if each.accident not in names(HEALTHY)]
    held = sum(each.code > 0 for each in accidents)
    print(f"{held} of {len(accidents)} accidents held back")
    if any(each.code for each in outcomes if each.accident in names(HEALTHY)):
        raise SystemExit("a healthy night was held back")


def names(accidents: tuple[Accident, ...]) -> list[str]:
    """Names of accidents."""
    return [each.__name__ for each in accidents]


class Replayed(ReturningLog):
    """Nights of real rows in place of drawn ones."""

    def __init__(self, schema: object, nights: Iterator[IntArray]) -> None:
        self.schema, self._nights = schema, nights  # type: ignore[assignment]

    def draw(self, rng: np.random.Generator) -> IntArray:
        """Rows of the next night."""
        return next(self._nights)


def run_young(
    home: Home, pipeline: str, n_nights: int, accidents: list[Accident]
) -> Iterator[Outcome]:
    """Run healthy nights, and then one night with each accident, on copies.

    Parameters
    ----------
    home
        Where; its folder must not exist.
    pipeline
        Name, for the outcomes.
    n_nights
        Healthy nights.
    accidents
        Accidents of the night after.
    """
    (home.folder / "data").mkdir(parents=True)
    home.generator.schema.save(home.folder / "schema.json")
    long = home.generator.layout == "long"
    columns = {"sample": "person", "variable": "film", "value": "stars", "time": "time"}
    source = {"path": "data", "layout": home.generator.layout, **(columns if long else {})}
    text = "".join(f'{name} = "{value}"\n' for name, value in source.items())
    (home.folder / "pipeline.toml").write_text(f"[source]\n{text}{SETTINGS}", "utf-8")
    for night in range(1, n_nights + 1):
        deliver_well(home, night, home.generator.draw(home.rng))
        outcome = run_night(home.folder, pipeline, night, "")
        if outcome.code:
            raise SystemExit(f"healthy night {night} was held back: {outcome}")
    rows = home.generator.draw(home.rng)
    for accident in accidents:
        folder = home.folder.with_name(f"{home.folder.name}-{accident.__name__}")
        shutil.copytree(home.folder, folder)
        rng = np.random.default_rng(0)
        accident(Home(folder, home.generator, rng), n_nights + 1, rows)
        yield run_night(folder, pipeline, n_nights + 1, accident.__name__)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
