#!/bin/sh
# Install the services of this checkout, as root: sh deploy/machine/install.sh
# Again after an upgrade: what is there already is kept, but for the environment from the lock and the units.
# PREFIX stands before every place, for packages and rehearsals; then no user is made, and nothing is started.
set -eu
cd "$(dirname "$0")/../.."
prefix="${PREFIX:-}"
code="$prefix/opt/pmf" state="$prefix/var/lib/pmf" cache="$prefix/var/cache/pmf" settings="$prefix/etc/pmf"
units="$prefix/etc/systemd/system"

if [ -z "$prefix" ] && ! id pmf > /dev/null 2>&1; then
  useradd --system --user-group --home-dir /var/lib/pmf --shell /usr/sbin/nologin pmf
fi

# code is root's, and the services cannot change it
mkdir -p "$code" "$units"
if [ "$(pwd -P)" != "$(cd "$code" && pwd -P)" ]; then
  for part in pyproject.toml requirements.lock Makefile README.md pmflib tasks flows deploy; do
    rm -rf "${code:?}/$part"
    cp -R "$part" "$code/"
  done
fi
# files of a rehearsal
rm -rf "$code/deploy/nightly"
# MAKE=true leaves the environment as it is
"${MAKE:-make}" -C "$code" .venv/.ready

install -d -m 0750 "$settings" "$settings/tls" "$state" "$state/nightly" "$state/prefect" "$cache"
[ -e "$settings/environment" ] || install -m 0640 deploy/machine/environment "$settings/environment"
if [ ! -e "$settings/secrets" ]; then
  password="pmf:$(openssl rand -hex 24)"
  (umask 077 && printf 'PREFECT_SERVER_API_AUTH_STRING=%s\nPREFECT_API_AUTH_STRING=%s\n' "$password" "$password" \
    > "$settings/secrets")
  chmod 0640 "$settings/secrets"
fi
[ -e "$settings/tls/ca.pem" ] || "$code/.venv/bin/python" deploy/certificates.py make "$settings/tls"
install -m 0644 deploy/machine/*.service "$units/"

if [ -z "$prefix" ]; then
  chown -R pmf:pmf "$state" "$cache"
  chown -R root:pmf "$settings"
  chmod 0640 "$settings"/tls/*.pem
  chmod 0600 "$settings/tls/ca-key.pem"
  systemctl daemon-reload
fi
