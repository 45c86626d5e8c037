#!/bin/sh
# Run a command; where NAME_FILE names a file, its content is the variable NAME: secrets are files until then.
set -eu
for name in PREFECT_SERVER_API_AUTH_STRING PREFECT_API_AUTH_STRING PREFECT_SERVER_DATABASE_PASSWORD \
  AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY; do
  eval "file=\${${name}_FILE:-}"
  if [ -n "$file" ]; then
    value="$(cat "$file")"
    export "$name=$value"
    unset "${name}_FILE"
  fi
done
exec "$@"
