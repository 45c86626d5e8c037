#!/bin/sh
# Run a command with the environment of the services: runuser -u pmf -- sh /opt/pmf/deploy/machine/run.sh prefect ...
set -eu
settings="${PREFIX:-}/etc/pmf"
set -a
. "$settings/environment"
. "$settings/secrets"
set +a
cd "$(dirname "$0")/../.."
PATH="$PWD/.venv/bin:$PATH"
export PATH
exec "$@"
