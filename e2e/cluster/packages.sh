#!/bin/bash
# Installs the Debian packages that the cluster is made with, where they are missing.
. "$(dirname "$0")/lib.sh"

declare -A package_of=(
  [dockerd]=docker.io
  [docker]=docker.io
  [containerd]=containerd
  [runc]=runc
  [iptables]=iptables
  [debootstrap]=debootstrap
)
missing=()
for program in "${!package_of[@]}"; do
  command -v "$program" >/dev/null || missing+=("${package_of[$program]}")
done
# The static one: it is copied into images that have no libraries.
[ -x /bin/busybox ] && ! ldd /bin/busybox >/dev/null 2>&1 || missing+=(busybox-static)

[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ]; then
  echo "run as root, or install first: ${missing[*]}" >&2
  exit 1
fi
install() {
  apt-get update -q
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
}
step "install Debian packages ${missing[*]}" install
