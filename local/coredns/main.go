// Command coredns is CoreDNS with the plugins of the local cluster. The upstream program also links the
// client libraries of several cloud providers, which make up most of its size and build time.
package main

import (
	"github.com/coredns/coredns/coremain"

	// The order of plugins is that of dnsserver.Directives, not of these imports. CoreDNS rejects
	// directives of missing plugins at startup.
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	coremain.Run()
}
