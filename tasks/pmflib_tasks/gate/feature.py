"""Which model is live, and how runs differ: what the feature adds to the pipeline."""

from pmflib_tasks.feature import Command, Feature, Place

FEATURE = Feature(
    "gate",
    section={"gate": Place("pmflib_tasks.gate.section:GateConfig")},
    commands=(
        Command("models", Place("pmflib_flows.gate.models:models"), "Operate", 310),
        Command("promote", Place("pmflib_flows.gate.models:promote"), "Operate", 320),
        Command("rollback", Place("pmflib_flows.gate.models:rollback"), "Operate", 330),
        Command("diff", Place("pmflib_flows.gate.diff:diff"), "Operate", 350),
    ),
)
