#!/bin/sh
# Passwords, keys and certificates in ./secrets, of which those that are there are kept. Whoever makes them alone can
# enter the folder; the files in it can be read, for each service runs as a user of its own.
set -eu
cd "$(dirname "$0")"
mkdir -p secrets
chmod 0700 secrets
for name in database_password object_store_key object_store_secret; do
  [ -e "secrets/$name" ] || openssl rand -hex 20 > "secrets/$name"
done
[ -e secrets/prefect_auth ] || printf 'pmf:%s\n' "$(openssl rand -hex 24)" > secrets/prefect_auth
[ -e secrets/tls/ca.pem ] || "${PYTHON:-python3}" ../certificates.py make secrets/tls
chmod 0644 secrets/database_password secrets/object_store_key secrets/object_store_secret secrets/prefect_auth
chmod 0755 secrets/tls
chmod 0644 secrets/tls/scheduler-key.pem secrets/tls/worker-key.pem secrets/tls/client-key.pem
