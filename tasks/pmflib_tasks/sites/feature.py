"""Counts that sites hand on: what the feature adds to the pipeline."""

from pmflib_tasks.feature import Command, Feature, Place

FEATURE = Feature(
    "sites",
    section={"sites": Place("pmflib_tasks.sites.section:SitesConfig")},
    commands=(Command("counts", Place("pmflib_flows.sites.counts:counts"), "Operate", 440),),
    plan=Place("pmflib_tasks.sites.pool:plan_stages"),
    steps=Place("pmflib_tasks.sites.pool:STEPS"),
    sections={"model": Place("pmflib_tasks.sites.site_sections:describe_sites")},
    erase=Place("pmflib_tasks.sites.pool:HOLDER"),
    health=Place("pmflib_tasks.sites.pool:list_checks"),
    find_withdrawal=Place("pmflib_tasks.sites.pool:find_withdrawal"),
)
