// Command kube is a multi-call executable of etcd, the Kubernetes control plane, kubelet, kube-proxy and
// kubectl. They share most of their code, so one executable has a fraction of the size and build time of
// seven.
//
// The component is selected by the file name of the executable (a symbolic link named kubelet runs the
// kubelet), or else by the first argument.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	_ "time/tzdata" // For time zones of CronJobs; the machine may have no zone database.

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // Credential plugins, for kubectl.
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // Client and work queue metrics.
	_ "k8s.io/component-base/metrics/prometheus/version"  // The kubernetes_build_info metric.
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"odc.dev/local/kubernetes/internal/multicall"
)

// Commands are constructed only when selected: a second one in the same process would register its
// feature gates and its version in the same global registries.
var components = []struct {
	name string
	run  func()
}{
	{"etcd", func() { etcdmain.Main(os.Args) }},
	{"kube-apiserver", func() { run(apiserver.NewAPIServerCommand()) }},
	{"kube-controller-manager", func() { run(controllermanager.NewControllerManagerCommand()) }},
	{"kube-scheduler", func() { run(scheduler.NewSchedulerCommand()) }},
	{"kubelet", func() { run(kubelet.NewKubeletCommand(context.Background())) }},
	{"kube-proxy", func() { run(proxy.NewProxyCommand()) }},
	{"kubectl", runKubectl},
}

func main() {
	names := make([]string, len(components))
	for i, c := range components {
		names[i] = c.name
	}
	args := multicall.Select(os.Args, names)
	if args == nil {
		if len(os.Args) > 1 {
			fmt.Fprintf(os.Stderr, "kube: unknown component %q\n\n", os.Args[1])
		}
		fmt.Fprintf(os.Stderr, "usage: kube COMPONENT [ARGUMENT...]\n\nComponents:\n  %s\n", strings.Join(names, "\n  "))
		os.Exit(2)
	}
	// The components read os.Args, and client-go derives the user agent from os.Args[0].
	os.Args = args
	for _, c := range components {
		if c.name == args[0] {
			c.run()
		}
	}
}

func run(command *cobra.Command) {
	os.Exit(cli.Run(command))
}

func runKubectl() {
	// kubectl logs during the construction of its command, before flags are parsed, so the verbosity has
	// to be set first.
	_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
}
