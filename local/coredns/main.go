// Command coredns is CoreDNS with the plugins the local cluster uses. The stock program links the client
// libraries of several clouds as well, which is most of its size and of its build time.
package main

import (
	"github.com/coredns/coredns/coremain"

	// The order in which plugins see a query is that of dnsserver.Directives, CoreDNS's own complete
	// list, not the order of this one. A directive whose plugin is missing here is refused at start.
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
