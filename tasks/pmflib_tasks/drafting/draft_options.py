"""Options of the draft of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pmflib.base.errors import ConfigError
from pmflib.base.options import option


@dataclass(frozen=True, kw_only=True)
class DraftOptions:
    """Options of the draft of a pipeline; settings that are not given are detected.

    The metadata of each field has its help, which `pmf infer --help` shows.
    """

    sample: str | None = option(None, "Column with the sample identifier.")
    weight: str | None = option(None, "Column with the weight of each sample.")
    psu: str | None = option(None, "With a weight: column of the primary sampling units.")
    stratum: str | None = option(None, "With --psu: column of the strata, which may be a variable.")
    replicates: str | None = option(
        None, "With a weight: pattern of the columns of replicate weights, for example 'W_FSTR*'."
    )
    replicate_method: str | None = option(
        None, "With --replicates: BRR, Fay, JK1, JK2 or bootstrap (see the survey's documentation)."
    )
    fay: float | None = option(None, "Fay's factor, only for method Fay.")
    variable: str | None = option(None, "Long logs: column with the variable.")
    value: str | None = option(None, "Long logs: column with the answer.")
    time: str | None = option(None, "Long logs: column with the time, which orders answers.")
    columns: str | None = option(None, "Column names of files without a header: a,b,c.")
    header: bool | None = option(
        None,
        "Whether the first row contains column names; otherwise columns are named c1, c2, ...",
        flags=("--header/--no-header",),
        show_default="detected",
    )
    header_rows: int | None = option(
        None, "Number of rows of the header, 1 to 3.", min=1, max=3, show_default="detected"
    )
    delimiter: str | None = option(
        None,
        "Delimiter of CSV files; \\t is a tab, whitespace is any run of blanks.",
        show_default="detected",
    )
    encoding: str | None = option(
        None, "Encoding of CSV files, for example utf-8 or cp1252.", show_default="detected"
    )
    decimal: str | None = option(
        None, "Decimal separator: a point or a comma.", show_default="detected"
    )
    missing: tuple[str, ...] = option(
        (), "Text that means 'not given', besides '', NA, NaN, null; may be repeated."
    )
    split: tuple[str, ...] = option(
        (),
        "Column whose cells hold several answers, and the sign between them: 'interests=;' makes a variable of no and "
        "yes for each answer; may be repeated.",
    )
    absent: str | None = option(
        None,
        "Level of an empty cell in columns of one value (a tick, or nothing), and in long logs of variables without a "
        "row of the sample: for example no.",
    )
    min_count: int = option(1, "Long logs: minimum number of answers per variable.", min=1)
    max_levels: int = option(
        32, "Maximum number of levels; columns with more distinct numbers are binned.", min=2
    )
    bins: int = option(8, "Number of bins for a continuous column.", min=2)
    rank: str | None = option(
        None,
        "Number of latent states, for classes to read; auto chooses it on held-out counts and samples. Without it, a "
        "stack of models is fitted, which answers best; with --target, and for logs of ratings, it is auto.",
    )
    quick: bool = option(
        False,
        "Fit a short ladder of models, or limit the choice of rank auto to one minute instead of ten.",
        flags=("--quick",),
    )
    target: str | None = option(None, "Variable to predict.")

    @property
    def layout(self) -> Literal["wide", "long"]:
        """Layout of the data: long if a column of variables, answers or times is named."""
        is_wide = self.variable is None and self.value is None and self.time is None
        return "wide" if is_wide else "long"

    @property
    def signs(self) -> dict[str, str]:
        """Signs between the answers of a cell, by column.

        Raises
        ------
        ConfigError
            If an option does not have the form COLUMN=SIGN.
        """
        pairs = [text.rpartition("=") for text in self.split]
        for text, (column, _, sign) in zip(self.split, pairs, strict=True):
            if not column or not sign:
                raise ConfigError(f"--split is {text!r}; give COLUMN=SIGN, such as 'interests=;'")
        return {column: sign.replace("\\t", "\t") for column, _, sign in pairs}

    def list_fields(self) -> dict[str, Any]:
        """Collect the given settings of the source, without missing codes."""
        names = ("sample", "weight", "psu", "stratum", "replicates", "replicate_method", "fay")
        found = {name: getattr(self, name) for name in (*names, "variable", "value", "time")}
        read: dict[str, Any] = {
            "delimiter": None if self.delimiter is None else self.delimiter.replace("\\t", "\t"),
            "encoding": self.encoding,
            "decimal": self.decimal,
            "header_rows": self.header_rows,
            "columns": None if self.columns is None else tuple(self.columns.split(",")),
        }
        found |= {name: value for name, value in read.items() if value is not None}
        return {"layout": self.layout, **found}
