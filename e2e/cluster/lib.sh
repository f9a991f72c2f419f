# shellcheck shell=bash disable=SC2034 # the settings are used by those who source this
# What the scripts here share: settings, progress and content keys. Sourced, never run.
set -euo pipefail

CLUSTER_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=${ROCKETMQ_CACHE:-$HOME/.cache/rocketmq-rs}
RUN=$CACHE/run # pid file, log, kubeconfig, shared volumes: gone with the cluster

CLUSTER_NAME=rocketmq
KUBERNETES_VERSION=v1.34.4
KIND_VERSION=v0.33.0
HELM_VERSION=v3.19.5
DEBIAN_RELEASE=bookworm

export KUBECONFIG=$RUN/kubeconfig
export PATH=$CACHE/bin:$PATH

# step WHAT COMMAND...: runs the command, says what is done and how long it took.
# Its output goes to a log that is shown only when it fails; a line every half
# minute tells a patient reader that it still works.
step() {
  local what=$1 log=$CACHE/log/step.$$ start=$SECONDS worker timer finished status
  shift
  mkdir -p "$CACHE/log"
  echo "  $what ..."
  ("$@") >"$log" 2>&1 </dev/null &
  worker=$!
  while :; do
    sleep 30 >/dev/null 2>&1 &
    timer=$!
    status=0
    wait -n -p finished "$worker" "$timer" || status=$?
    [ "$finished" = "$timer" ] || break
    echo "  $what: still at it after $((SECONDS - start)) s"
  done
  kill "$timer"
  wait "$timer" 2>/dev/null || true
  if [ "$status" != 0 ]; then
    echo "  $what: FAILED with exit code $status; its output:" >&2
    tail -n 60 "$log" >&2
    exit "$status"
  fi
  rm -f "$log"
  echo "  $what: done in $((SECONDS - start)) s"
}

# key FILE...: twelve letters that change when a file or its name does. What is
# cached carries such a key in its name, so a changed recipe never meets a stale result.
key() {
  (
    cd "$CLUSTER_DIR"
    find "$@" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c1-12
  )
}

# make_once TARGET FUNCTION: FUNCTION fills the directory it is given, which becomes
# TARGET only when it succeeded. A run that is cut short leaves nothing half-made.
make_once() {
  local target=$1 fill=$2
  rm -rf "$target.part"
  mkdir -p "$target.part"
  "$fill" "$target.part"
  rm -rf "$target"
  mv "$target.part" "$target"
}

# forget_others DIRECTORY PREFIX KEEP: removes earlier versions of a cached thing.
forget_others() {
  find "$1" -maxdepth 1 -name "$2*" ! -name "$3" -exec rm -rf {} +
}

KUBE_DIR=$CACHE/kube-$KUBERNETES_VERSION-$(key go)
NODE_IMAGE=rocketmq-rs/e2e-node:$KUBERNETES_VERSION-$(key go node manifests node-image.sh lib.sh)
# kind's own default of this version, for machines whose Docker reaches a registry.
PUBLISHED_NODE_IMAGE=kindest/node:v1.37.0@sha256:a1ed56cfb0e7b93589bdf97c8cd566405a265939e3620fc4f5de89adff580ae5

# Names inside the node; a domain in front, or they would be taken for Docker's.
KUBE_IMAGE=rocketmq.rs/e2e/kube:built
COREDNS_IMAGE=rocketmq.rs/e2e/coredns:built
PAUSE_IMAGE=rocketmq.rs/e2e/pause:built
