# What every shell and service of the deployment needs; source it from the root of the checkout.
# A variable that is set already keeps its value.
export PATH="$PWD/.venv/bin:$PATH"

# The pipeline of the deployments; read by `prefect deploy`.
export PMF_CONFIG="${PMF_CONFIG:-$PWD/deploy/nightly/pipeline.toml}"
# What the names of its deployments end with, where a server has those of several pipelines: -NAME.
export PMF_SUFFIX="${PMF_SUFFIX:-}"

# Prefect's database, logs and profiles, and where its server listens.
export PREFECT_HOME="${PREFECT_HOME:-$PWD/.prefect}"
export PREFECT_SERVER_API_HOST="${PREFECT_SERVER_API_HOST:-127.0.0.1}"
export PREFECT_SERVER_API_PORT="${PREFECT_SERVER_API_PORT:-4200}"
export PREFECT_API_URL="${PREFECT_API_URL:-http://$PREFECT_SERVER_API_HOST:$PREFECT_SERVER_API_PORT/api}"

# The password of the server, in a file that this user alone can read: without one, whoever has a login on this machine
# could have the server run code as this user.
if [ -z "${PREFECT_API_AUTH_STRING:-}" ]; then
  if [ ! -s "$PREFECT_HOME/secrets" ]; then
    mkdir -p -m 0700 "$PREFECT_HOME"
    password="pmf:$(python -c 'import secrets; print(secrets.token_hex(24))')"
    (umask 077 && printf 'PREFECT_SERVER_API_AUTH_STRING=%s\nPREFECT_API_AUTH_STRING=%s\n' "$password" "$password" \
      > "$PREFECT_HOME/secrets")
    unset password
  fi
  set -a
  . "$PREFECT_HOME/secrets"
  set +a
fi

# Without a server a run must fail: a private one would hide it from the history.
export PREFECT_SERVER_ALLOW_EPHEMERAL_MODE=false
# Held by a file, the place of a run that died with the machine is given back; held in memory, it is not.
export PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE=prefect.server.concurrency.lease_storage.filesystem
# Writers of the SQLite file wait for each other, rather than fail.
export PREFECT_SERVER_DATABASE_TIMEOUT=60

# Nothing is sent to Prefect's makers: one switch for the client, one for the server.
export DO_NOT_TRACK=1
export PREFECT_SERVER_ANALYTICS_ENABLED=false
