#!/bin/bash
# Provides kind, helm and kubectl: the first two built from their Go modules into
# the cache's bin directory, kubectl too if this machine has none.
. "$(dirname "$0")/lib.sh"

# tool NAME MODULE VERSION: a symlink says which version bin/NAME is.
tool() {
  local name=$1 module=$2 version=$3 directory=$CACHE/tools/$1-$3
  fill() { GOBIN=$1 GOFLAGS=-mod=mod CGO_ENABLED=0 go install -trimpath -ldflags '-s -w' "$module@$version"; }
  if [ ! -x "$directory/$name" ]; then
    mkdir -p "$CACHE/tools"
    step "build $name $version" make_once "$directory" fill
    forget_others "$CACHE/tools" "$name-" "$name-$version"
  fi
  mkdir -p "$CACHE/bin"
  ln -sfn "$directory/$name" "$CACHE/bin/$name"
}

tool kind sigs.k8s.io/kind "$KIND_VERSION"
tool helm helm.sh/helm/v3/cmd/helm "$HELM_VERSION"
command -v kubectl >/dev/null || "$CLUSTER_DIR/kube.sh"
