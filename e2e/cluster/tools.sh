#!/bin/bash
# tools.sh [NAME...]: provides kind, helm and kubectl, or those that are named. The
# first two are built from their Go modules into the cache's bin directory, kubectl
# too if this machine has none.
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

[ $# -gt 0 ] || set -- kind helm kubectl
for name; do
  case $name in
    kind) tool kind sigs.k8s.io/kind "$KIND_VERSION" ;;
    helm) tool helm helm.sh/helm/v3/cmd/helm "$HELM_VERSION" ;;
    kubectl) command -v kubectl >/dev/null || "$CLUSTER_DIR/kube.sh" ;;
    *)
      echo "tools.sh knows no '$name': allowed are kind, helm, kubectl" >&2
      exit 2
      ;;
  esac
done
