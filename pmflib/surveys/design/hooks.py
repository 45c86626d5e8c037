"""What survey designs add to the core."""

_PLACE = "pmflib.surveys.design.sample_designs"
HOOKS = {
    "stored_designs": {"psu": f"{_PLACE}:open_units", "replicates": f"{_PLACE}:open_replicates"},
}
