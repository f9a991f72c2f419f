#!/bin/bash
# Makes the image that the cluster's nodes run, from Debian packages, the files
# that kind lays into its own node image, and what kube.sh built. It holds every
# image that kubeadm wants, so that a node never asks a registry.
. "$(dirname "$0")/lib.sh"

! docker image inspect "$NODE_IMAGE" >/dev/null 2>&1 || exit 0

LIBRARIES=/usr/lib/x86_64-linux-gnu
KUBE_PROGRAMS="etcd kube-apiserver kube-controller-manager kube-proxy kube-scheduler kubeadm kubectl kubelet"
BASE=$CACHE/debian-$DEBIAN_RELEASE-$(key node/packages.txt)
mkdir -p "$CACHE/tmp"
WORK=$(mktemp -d "$CACHE/tmp/node.XXXXXX")
ROOT=$WORK/root
trap 'rm -rf "$WORK"' EXIT

# The node's packages, as an archive that later node images start from.
base() {
  local mirror
  mirror=$(grep -hoE 'https?://[^ ]+/debian/?( |$)' -r /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null | head -n 1 || true)
  # shellcheck disable=SC2086 # no mirror named: debootstrap has its own default
  debootstrap --variant=minbase --include="$(paste -sd, "$CLUSTER_DIR/node/packages.txt")" \
    "$DEBIAN_RELEASE" "$WORK/base" $mirror
  rm -rf "$WORK"/base/usr/share/{doc,info,locale,man}/* "$WORK"/base/var/{lib/apt/lists,cache/apt}/*
  tar -C "$WORK/base" -cf "$1/root.tar" .
  rm -rf "$WORK/base"
}

# Debian plus kind's files, with systemd cut down to what a container needs.
system() {
  local kind_source
  mkdir -p "$ROOT"
  tar -C "$ROOT" -xpf "$BASE/root.tar"
  kind_source=$(GOFLAGS=-mod=mod go mod download -json "sigs.k8s.io/kind@$KIND_VERSION" | sed -n 's/^\t"Dir": "\(.*\)".*/\1/p')
  # The module cache is read-only, modes and all.
  cp -r --no-preserve=mode "$kind_source/images/base/files/." "$ROOT/"
  chmod 755 "$ROOT/kind" "$ROOT"/kind/bin "$ROOT"/kind/bin/* "$ROOT"/usr/local/bin/*

  # kind expects containerd 2 under /usr/local; Debian's 1.6 names two settings
  # differently. Without CAP_SYS_RESOURCE nobody may lower an oom_score_adj.
  ln -sf /usr/bin/containerd "$ROOT/usr/local/bin/containerd"
  sed -i '/^OOMScoreAdjust/d' "$ROOT/etc/systemd/system/containerd.service"
  sed -i -e 's/tolerate_missing_hugepages_controller/tolerate_missing_hugetlb_controller/' \
    -e '/discard_unpacked_layers/d' \
    -e 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' \
    -e "s,sandbox_image = .*,sandbox_image = \"$PAUSE_IMAGE\"," "$ROOT/etc/containerd/config.toml"

  mkdir -p "$ROOT"/opt/cni/bin "$ROOT"/etc/cni/net.d "$ROOT"/etc/kubernetes/manifests "$ROOT"/lib/modules
  cp "$ROOT"/usr/lib/cni/{host-local,loopback,portmap,ptp} "$ROOT/opt/cni/bin/"

  local units=$ROOT/lib/systemd/system
  rm -f "$units"/multi-user.target.wants/* "$units"/local-fs.target.wants/* "$units"/basic.target.wants/* \
    "$units"/sockets.target.wants/*{udev,initctl}* "$ROOT"/etc/systemd/system/*.wants/* \
    "$units"/sysinit.target.wants/systemd-tmpfiles-setup.service
  echo "ReadKMsg=no" >>"$ROOT/etc/systemd/journald.conf"
  : >"$ROOT/etc/machine-id"
  ln -sf /usr/lib/systemd/systemd "$ROOT/sbin/init"
  chroot "$ROOT" systemctl enable kubelet.service containerd.service undo-mount-hacks.service
  chroot "$ROOT" systemctl mask systemd-binfmt.service # it would register with the host's kernel
  chroot "$ROOT" ctr oci spec |
    jq_in_root '.hooks.createContainer += [{path: "/kind/bin/mount-product-files.sh"}] | del(.process.rlimits)' \
      >"$WORK/cri-base.json"
  mv "$WORK/cri-base.json" "$ROOT/etc/containerd/cri-base.json"

  install -m 755 "$KUBE_DIR/kube" "$ROOT/usr/bin/kube"
  local program
  for program in kubeadm kubectl kubelet; do ln -s kube "$ROOT/usr/bin/$program"; done
  mkdir -p "$ROOT/kind/manifests"
  printf %s "$KUBERNETES_VERSION" >"$ROOT/kind/version"
  cp "$CLUSTER_DIR/manifests/network.yaml" "$ROOT/kind/manifests/default-cni.yaml"
  # kind applies this one before any pod has a network, so CoreDNS starts with it.
  (cd "$CLUSTER_DIR/manifests" && cat storage.yaml && echo --- && cat dns.yaml) >"$ROOT/kind/manifests/default-storage.yaml"
}

jq_in_root() { chroot "$ROOT" jq "$@"; }

# archive IMAGE ROOT: an image of one layer, as an archive that containerd reads.
archive() {
  tar -C "$2" --owner=0 --group=0 -c . | docker import - "$1"
  docker save "$1" -o "$WORK/$(basename "${1%:*}").tar"
  docker rmi "$1"
}

# One image is every component of the control plane and every agent of a node:
# kubeadm's names for them become tags of it.
component_images() {
  local image=$WORK/kube program library
  mkdir -p "$image"/{bin,etc,run,tmp,usr/sbin,usr/local/bin,var/run,"$LIBRARIES"}
  cp "$KUBE_DIR"/{kube,node-network,node-volumes} "$image/usr/local/bin/"
  for program in $KUBE_PROGRAMS; do ln -s kube "$image/usr/local/bin/$program"; done
  install -m 755 /bin/busybox "$image/bin/busybox"
  ln -s busybox "$image/bin/sh"
  # kube-proxy calls iptables and conntrack. Of iptables' plug-ins, "statistic" wants
  # libm: without it a service of one endpoint works and one of two does not.
  cp -r "$ROOT$LIBRARIES/xtables" "$image$LIBRARIES/"
  for program in xtables-nft-multi xtables-legacy-multi conntrack; do
    cp -L "$ROOT/usr/sbin/$program" "$image/usr/sbin/$program"
  done
  for program in ip{,6}tables{,-save,-restore}; do ln -s xtables-nft-multi "$image/usr/sbin/$program"; done
  chroot "$ROOT" sh -c "ldd /usr/sbin/xtables-nft-multi /usr/sbin/xtables-legacy-multi /usr/sbin/conntrack $LIBRARIES/xtables/*.so" |
    grep -oE '/[^ ]+ \(' | tr -d ' (' | sort -u |
    while read -r library; do
      mkdir -p "$image$(dirname "$library")"
      cp -L "$ROOT$library" "$image$library"
    done
  archive "$KUBE_IMAGE" "$image"

  for program in coredns pause; do
    mkdir -p "$WORK/$program"
    cp "$KUBE_DIR/$program" "$WORK/$program/$program"
  done
  tar -C "$WORK/pause" --owner=0 --group=0 -c . | docker import --change 'ENTRYPOINT ["/pause"]' - "$PAUSE_IMAGE"
  tar -C "$WORK/coredns" --owner=0 --group=0 -c . | docker import --change 'ENTRYPOINT ["/coredns"]' - "$COREDNS_IMAGE"
  docker save "$PAUSE_IMAGE" "$COREDNS_IMAGE" -o "$WORK/small.tar"
  docker rmi "$PAUSE_IMAGE" "$COREDNS_IMAGE"
}

# A containerd on this machine, whose root is the node's, takes the images in.
load_images() {
  local socket=$WORK/containerd.sock daemon name image status=0
  mkdir -p "$ROOT/var/lib/containerd"
  cat >"$WORK/containerd.toml" <<T
version = 2
root = "$ROOT/var/lib/containerd"
state = "$WORK/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "$socket"
T
  containerd --config "$WORK/containerd.toml" &
  daemon=$!
  (
    in_node() { ctr --address "$socket" --namespace k8s.io images "$@"; }
    for _ in $(seq 100); do
      ! in_node list -q || break
      sleep 0.1
    done
    in_node import "$WORK/kube.tar"
    in_node import "$WORK/small.tar"
    for name in $("$KUBE_DIR/kube" kubeadm config images list --kubernetes-version "$KUBERNETES_VERSION"); do
      case $name in
        */pause:*) image=$PAUSE_IMAGE ;;
        */coredns:*) image=$COREDNS_IMAGE ;;
        *) image=$KUBE_IMAGE ;;
      esac
      in_node tag --force "$image" "$name"
    done
  ) || status=$?
  kill "$daemon"
  wait "$daemon" || true
  return "$status"
}

import() {
  tar -C "$ROOT" -c . | docker import - "$NODE_IMAGE-files"
  # `docker import` knows no STOPSIGNAL, and systemd stops on no other.
  DOCKER_BUILDKIT=0 docker build -t "$NODE_IMAGE" - <<T
FROM $NODE_IMAGE-files
ENV container=docker
STOPSIGNAL SIGRTMIN+3
ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]
T
  docker rmi "$NODE_IMAGE-files"
}

if [ ! -f "$BASE/root.tar" ]; then
  step "install the node's Debian packages into a directory" make_once "$BASE" base
  forget_others "$CACHE" debian- "$(basename "$BASE")"
fi
step "lay out the node's file system" system
step "make the images of the control plane" component_images
step "load them into the node" load_images
step "import the node image" import
# Earlier node images are of no more use.
docker images --format '{{.Repository}}:{{.Tag}}' "${NODE_IMAGE%:*}" | grep -vxF "$NODE_IMAGE" | xargs -r docker rmi >/dev/null || true
