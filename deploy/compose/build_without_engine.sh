#!/bin/sh
# Build the image and run it where there is no engine and no registry: as root, from the root of a checkout, on Debian, with
#   apt-get install --no-install-recommends buildah debootstrap
# The image of Python is made of Debian's packages in place of the official one; the Dockerfile is the same. Needed are the
# package index and 4 GB; minutes. BASE=registry leaves the official image as it is, where a registry answers.
set -eu
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
tag=$(sed -n 's/^ARG PYTHON=//p' deploy/compose/Dockerfile)
if [ "${BASE:-debian}" = debian ]; then
  root=$(mktemp -d)
  trap 'rm -rf "$root"' EXIT
  debootstrap --variant=minbase --include=python3,python3-venv,python3-pip,ca-certificates bookworm "$root" \
    http://deb.debian.org/debian > /dev/null
  ln -s python3 "$root/usr/bin/python"
  # Debian's Python refuses to install packages beside its own
  rm "$root"/usr/lib/python3.*/EXTERNALLY-MANAGED
  # authorities of this machine, for an index behind a proxy
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
  base=$(buildah from scratch)
  buildah add --quiet "$base" "$root" /
  for setting in PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    PIP_CERT=/etc/ssl/certs/ca-certificates.crt; do
    buildah config --env "$setting" "$base"
  done
  buildah commit --quiet --rm "$base" "docker.io/library/python:$tag"
  set -- --pull=never
fi
# a format that knows health checks
buildah build "$@" --format docker --layers=false --file deploy/compose/Dockerfile --tag pmf .
run=$(buildah from --pull=never localhost/pmf)
buildah run "$run" -- /opt/pmf/deploy/compose/start.sh pmf --version
buildah run "$run" -- sh -c 'cd /var/lib/pmf && id -u && pmf demo --folder demo --users 600 && pmf status demo/pipeline.toml'
buildah rm "$run"
