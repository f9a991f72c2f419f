#!/bin/bash
# cluster.sh up:   a three-node kind cluster that is healthy, with all it needs on
#                  this machine; a running one is kept.
# cluster.sh down: removes the cluster, and the Docker daemon if `up` started it.
#
# NODE_IMAGE_SOURCE says where nodes come from: "published" is kind's own image,
# "built" is node-image.sh, and "auto" is the first where Docker can pull it soon.
. "$(dirname "$0")/lib.sh"

NODES=$(grep -c 'role:' "$CLUSTER_DIR/kind.yaml")

exists() { kind get clusters 2>/dev/null | grep -qxF "$CLUSTER_NAME"; }

# By their leases: a node whose kubelet is gone is still called Ready for a while.
all_nodes_alive() {
  local since renewed
  since=$(date -u -d '-20 seconds' +%FT%T)
  renewed=$(kubectl --request-timeout 5s -n kube-node-lease get leases \
    -o jsonpath='{range .items[*]}{.spec.renewTime}{"\n"}{end}' 2>/dev/null) &&
    [ "$(awk -v since="$since" '$1 >= since' <<<"$renewed" | wc -l)" = "$NODES" ]
}

healthy() {
  [ -s "$KUBECONFIG" ] && exists || return 1
  # Nodes that were just started with their daemon need a moment.
  for _ in $(seq 30); do
    if all_nodes_alive; then
      settle >/dev/null 2>&1
      return
    fi
    [ "$(docker ps -q --filter "label=io.x-k8s.kind.cluster=$CLUSTER_NAME" | wc -l)" = "$NODES" ] || return 1
    sleep 1
  done
  return 1
}

choose_image() {
  case ${NODE_IMAGE_SOURCE:-auto} in
    published)
      step "pull the published node image" docker pull -q "$PUBLISHED_NODE_IMAGE"
      image=$PUBLISHED_NODE_IMAGE
      ;;
    built)
      "$CLUSTER_DIR/kube.sh"
      "$CLUSTER_DIR/node-image.sh"
      image=$NODE_IMAGE
      ;;
    auto)
      # A registry out of reach may keep a client waiting for minutes: it is asked
      # for a few bytes before the whole.
      if docker image inspect "$PUBLISHED_NODE_IMAGE" >/dev/null 2>&1 || published_is_within_reach; then
        NODE_IMAGE_SOURCE=published
      else
        echo "  the published node image is out of reach: the node image is built here"
        NODE_IMAGE_SOURCE=built
      fi
      choose_image
      ;;
    *)
      echo "NODE_IMAGE_SOURCE is '$NODE_IMAGE_SOURCE': allowed are auto, built, published" >&2
      exit 2
      ;;
  esac
}

published_is_within_reach() { timeout 10 docker manifest inspect "$PUBLISHED_NODE_IMAGE" >/dev/null 2>&1; }

create() {
  mkdir -p "$RUN/shared"
  sed "s,@SHARED@,$RUN/shared," "$CLUSTER_DIR/kind.yaml" >"$RUN/kind.yaml"
  kind create cluster --name "$CLUSTER_NAME" --config "$RUN/kind.yaml" --image "$image" --wait 180s
}

settle() {
  kubectl wait node --all --for condition=Ready --timeout 120s
  kubectl -n kube-system rollout status deployment/coredns --timeout 120s
}

up() {
  "$CLUSTER_DIR/packages.sh"
  "$CLUSTER_DIR/tools.sh"
  "$CLUSTER_DIR/dockerd.sh" start
  if healthy; then
    echo "  cluster $CLUSTER_NAME is running"
    return
  fi
  # Half a cluster, as a killed daemon leaves it, cannot be mended.
  ! exists || step "remove what is left of an earlier cluster" kind delete cluster --name "$CLUSTER_NAME"
  choose_image
  step "create cluster $CLUSTER_NAME from $image" create
  step "wait for nodes and DNS" settle
}

down() {
  if command -v docker >/dev/null && timeout 10 docker version >/dev/null 2>&1; then
    ! exists || step "delete cluster $CLUSTER_NAME" kind delete cluster --name "$CLUSTER_NAME"
  fi
  "$CLUSTER_DIR/dockerd.sh" stop
  rm -rf "$RUN"
}

case ${1:-} in
  up) up ;;
  down) down ;;
  *)
    echo "usage: cluster.sh up|down" >&2
    exit 2
    ;;
esac
