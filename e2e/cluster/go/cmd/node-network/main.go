// Command node-network is what pods on different nodes reach each other by: it
// writes the node's CNI configuration from its own podCIDR and keeps a route to
// the podCIDR of every other node. One copy runs on each node, in its network.
//
// Nodes are containers on one bridge, so plain routes do; there is no overlay,
// no policy and no masquerade.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// period is how soon a changed node address is noticed; the informer's cache is
// local, and a route that stands is not written again.
const period = time.Second

func main() {
	node := flag.String("node", os.Getenv("NODE_NAME"), "name of this node")
	config := flag.String("config", "/etc/cni/net.d/10-rocketmq.conflist", "CNI configuration to write")
	flag.Parse()
	if *node == "" {
		klog.Exit("no node name: set --node or NODE_NAME")
	}
	cluster, err := rest.InClusterConfig()
	if err != nil {
		klog.Exit(err)
	}
	factory := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(cluster), 0)
	nodes := factory.Core().V1().Nodes().Lister()
	stop := make(chan struct{})
	factory.Start(stop)
	factory.WaitForCacheSync(stop)

	for ; ; time.Sleep(period) {
		all, err := nodes.List(labels.Everything())
		if err != nil {
			klog.Error(err)
			continue
		}
		for _, other := range all {
			if err := connect(other, *node, *config); err != nil {
				klog.Errorf("node %s: %v", other.Name, err)
			}
		}
	}
}

// connect makes the pods of one node reachable: by CNI where it is this node, by
// a route where it is another.
func connect(node *core.Node, self, config string) error {
	if node.Spec.PodCIDR == "" {
		return nil // not allocated yet
	}
	if node.Name == self {
		return writeConfig(config, node.Spec.PodCIDR)
	}
	for _, address := range node.Status.Addresses {
		if address.Type == core.NodeInternalIP {
			return route(node.Spec.PodCIDR, address.Address)
		}
	}
	return nil // its kubelet has not reported an address yet
}

type object = map[string]any

func writeConfig(path, podCIDR string) error {
	wanted, err := json.Marshal(object{
		"cniVersion": "0.4.0",
		"name":       "rocketmq",
		"plugins": []object{
			{
				"type": "ptp", "ipMasq": false, "mtu": 1500,
				"ipam": object{
					"type": "host-local", "dataDir": "/run/cni-ipam-state",
					"ranges": [][]object{{{"subnet": podCIDR}}},
					"routes": []object{{"dst": "0.0.0.0/0"}},
				},
			},
			{"type": "portmap", "capabilities": object{"portMappings": true}},
		},
	})
	if err != nil {
		return err
	}
	if present, err := os.ReadFile(path); err == nil && bytes.Equal(present, wanted) {
		return nil
	}
	// containerd watches the directory: it must never see half a file. A name
	// without the known suffix is not looked at.
	temporary := filepath.Join(filepath.Dir(path), ".rocketmq.tmp")
	if err := os.WriteFile(temporary, wanted, 0o644); err != nil {
		return err
	}
	klog.Infof("pods of this node are in %s", podCIDR)
	return os.Rename(temporary, path)
}

func route(podCIDR, gateway string) error {
	_, destination, err := net.ParseCIDR(podCIDR)
	if err != nil {
		return err
	}
	via := net.ParseIP(gateway)
	if via == nil {
		return errors.New("not an address: " + gateway)
	}
	wanted := &netlink.Route{Dst: destination, Gw: via}
	present, err := netlink.RouteListFiltered(netlink.FAMILY_V4, wanted, netlink.RT_FILTER_DST|netlink.RT_FILTER_GW)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	if len(present) > 0 {
		return nil
	}
	if err := netlink.RouteReplace(wanted); err != nil {
		return fmt.Errorf("route %s via %s: %w", podCIDR, gateway, err)
	}
	klog.Infof("pods in %s are reached via %s", podCIDR, gateway)
	return nil
}
