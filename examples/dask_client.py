"""Samples of a store are fitted by the workers of a Dask client, and stay with them (extra `pipeline`)."""

import subprocess
import sys

from distributed import Client

import pmflib as pmf
from pmflib.store.artefacts import Store
from pmflib.store.run_records import find_last_run

# a pipeline that has run: in practice yours, by `pmf run`
demo = ["demo", "survey", "--folder", "demo", "--users", "500"]
subprocess.run([sys.executable, "-m", "pmflib_flows", *demo], check=True, capture_output=True)

store = Store("demo/store")
dataset = find_last_run(store, "demo").stages["dataset"]
schema = pmf.Schema.load("demo/schema.json")
with Client(
    processes=False, dashboard_address="127.0.0.1:0"
) as client:  # or the address of a scheduler
    training = pmf.em.StoredSamples.open(store, dataset, schema, range(14), client)
    held_out = pmf.em.StoredSamples.open(store, dataset, schema, [14], client)
    print(pmf.fit_em(training, rank=4, validation=held_out))
