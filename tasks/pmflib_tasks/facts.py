"""What a run has found out: the sections of its record, with their types."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeAlias

from pmflib.base.json_records import Form, JsonRecord, from_json, to_json
from pmflib.fits.pair_agreement import PairAgreement
from pmflib.ingest.dataset.accounts import DatasetAccount
from pmflib.store.artefacts import Reference
from pmflib_tasks.gate.gate_decision import GateNumbers
from pmflib_tasks.guards.findings import Finding

Summary: TypeAlias = Mapping[str, Any]
"""Summary of an artefact in the manifest: what its stage reports, and what features add to it, plain JSON types."""


@dataclass(frozen=True)
class Refit(JsonRecord):
    """Decision how the model of a run is fitted.

    Parameters
    ----------
    way
        "fresh": from scratch. "warm": from the live model, or for traits, with its settings. "same": as in the run of
        the live model, because nothing is new.
    reason
        One sentence for people.
    options
        Digest of the options of the fit.
    start
        Model that the fit starts from; None if settings are selected and starts are made from the counts.
    """

    way: Literal["fresh", "warm", "same"]
    reason: str
    options: str
    start: Annotated[Reference | None, Form.HIDDEN] = None

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Restore a decision from the record of a run; early ones have no reason."""
        return super().from_json({"reason": "", **content})


class RunFacts(UserDict[str, Any]):
    """Facts of a run: a mapping of sections by name in the order in which they were noted, plain JSON types.

    The sections of every run have a property of their type, which is read when it is asked for, so that one that an
    early version wrote differently does not hide the others. Sections of features are read by these.

    Examples
    --------
    >>> facts = RunFacts()
    >>> facts.note(refit=Refit("fresh", "fresh: model.refresh is 0", "ab"), warnings=["few rows"])
    >>> facts["refit"]["way"], facts.refit.reason, facts.warnings, facts.account
    ('fresh', 'fresh: model.refresh is 0', ['few rows'], None)
    """

    def note(self, **sections: Any) -> None:
        """Add sections: records, lists of them, or plain JSON types."""
        self.update(to_json(sections))

    @property
    def account(self) -> DatasetAccount | None:
        """Account of the rows; None if the run ended before it."""
        return DatasetAccount.from_json(self["rows"]) if self.get("rows") else None

    @property
    def findings(self) -> list[Finding]:
        """Findings of the guards; none if the run did not reach them."""
        return from_json(list[Finding], list(self.get("quality", ())))

    @property
    def refit(self) -> Refit | None:
        """How the model was fitted; None if the run did not reach the fit."""
        return Refit.from_json(self["refit"]) if self.get("refit") else None

    @property
    def model(self) -> Summary:
        """Summary of the new model: see `pmflib.fits.fit_result.summarise_fit`."""
        return self.get("model") or {}

    @property
    def rank(self) -> Summary:
        """Summary of the choice of the rank; empty if it was given."""
        return self.get("rank") or {}

    @property
    def scores(self) -> Summary:
        """Scores of the new model on hidden cells; empty if there were none."""
        return self.get("scores") or {}

    @property
    def agreement(self) -> PairAgreement | None:
        """Agreement of the new model with the counts of pairs; None if it was not computed."""
        found = self.scores.get("pairs")
        return None if found is None else PairAgreement.from_json(found)

    @property
    def gate(self) -> GateNumbers:
        """Results of the gate, without the rule, whose format differs between versions."""
        return GateNumbers.read(self.get("gate") or {})

    @property
    def warnings(self) -> list[str]:
        """What the counts and the fit warn of."""
        return list(self.get("warnings", ()))

    def name_model(self, which: Literal["new", "live"]) -> str | None:
        """Return the digest of the new model, or of that which was live before; None if there is none."""
        digest: str | None = (self.get("gate") or {}).get(which)
        return digest
