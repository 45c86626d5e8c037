#!/bin/sh
# The work pool and the deployments; the same again changes nothing, so it runs whenever the services start.
set -eu
prefect server status --wait --timeout 180
# other words than these for another type of pool
[ "$#" -gt 0 ] || set -- --type process
prefect --no-prompt work-pool create pmf --overwrite "$@"
prefect --no-prompt deploy --prefect-file deploy/prefect.yaml --all
