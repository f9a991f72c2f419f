// Command coredns is CoreDNS with the plugins a cluster's own zone needs. The
// published build links some fifty more, several of them cloud clients.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
	_ "github.com/coredns/coredns/plugin/template"
)

func main() {
	// The order is the path of a query. "template" follows "kubernetes" so that it
	// answers the names no zone of the cluster knows; upstream has it before.
	dnsserver.Directives = []string{
		"reload", "health", "ready", "prometheus", "errors", "log", "loadbalance",
		"cache", "kubernetes", "template",
	}
	coremain.Run()
}
