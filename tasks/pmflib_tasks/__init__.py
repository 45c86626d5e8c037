"""Prefect tasks, one per stage: open a client, call pmflib, publish, return a reference."""
