"""Options of the draft of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pmflib.core.options import option


@dataclass(frozen=True, kw_only=True)
class DraftOptions:
    """Options of the draft of a pipeline; settings that are not given are detected.

    The metadata of each field has its help, which `pmf infer --help` shows.
    """

    sample: str | None = option(None, "Column that identifies the sample.")
    weight: str | None = option(None, "Column with the weight of each sample.")
    psu: str | None = option(None, "With a weight: column of the primary sampling units.")
    stratum: str | None = option(None, "With --psu: column of the strata, which may be a variable.")
    replicates: str | None = option(
        None, "With a weight: pattern of the columns of replicate weights, as 'W_FSTR*'."
    )
    replicate_method: str | None = option(
        None, "With --replicates: BRR, Fay, JK1, JK2 or bootstrap, as the survey says."
    )
    fay: float | None = option(None, "Fay's factor, with the method Fay.")
    variable: str | None = option(None, "Long logs: column that names the variable.")
    value: str | None = option(None, "Long logs: column that holds the answer.")
    time: str | None = option(None, "Long logs: column that orders answers.")
    columns: str | None = option(None, "Names of the columns of files without a header: a,b,c.")
    header: bool | None = option(
        None,
        "Whether the first row holds names; if not, columns are named c1, c2, ...",
        flags=("--header/--no-header",),
        show_default="found out",
    )
    delimiter: str | None = option(
        None,
        "Delimiter of CSV files; \\t is a tab, whitespace any run of blanks.",
        show_default="found out",
    )
    encoding: str | None = option(
        None, "Encoding of CSV files, as utf-8 or cp1252.", show_default="found out"
    )
    decimal: str | None = option(
        None, "Sign before decimals: a point or a comma.", show_default="found out"
    )
    missing: tuple[str, ...] = option(
        (), "Text that means 'not given', besides '', NA, NaN, null; may be repeated."
    )
    min_count: int = option(1, "Long logs: answers that a variable must have.", min=1)
    max_levels: int = option(32, "More distinct numbers are cut into bins.", min=2)
    bins: int = option(8, "Bins of a continuous column.", min=2)
    rank: str = option(
        "auto", "Number of latent states; auto: chosen on held-out counts and samples."
    )
    quick: bool = option(
        False,
        "Write a budget of a minute for rank auto, which else takes ten.",
        flags=("--quick",),
    )
    target: str | None = option(None, "Variable that the model is to predict; it is checked first.")

    @property
    def layout(self) -> Literal["wide", "long"]:
        """Layout of the data: long if a column of variables, answers or times is named."""
        is_wide = self.variable is None and self.value is None and self.time is None
        return "wide" if is_wide else "long"

    def list_fields(self) -> dict[str, Any]:
        """Collect the given settings of the source, without missing codes."""
        names = ("sample", "weight", "psu", "stratum", "replicates", "replicate_method", "fay")
        found = {name: getattr(self, name) for name in (*names, "variable", "value", "time")}
        read: dict[str, Any] = {
            "delimiter": None if self.delimiter is None else self.delimiter.replace("\\t", "\t"),
            "encoding": self.encoding,
            "decimal": self.decimal,
            "columns": None if self.columns is None else tuple(self.columns.split(",")),
        }
        found |= {name: value for name, value in read.items() if value is not None}
        return {"layout": self.layout, **found}
