// Command kube holds a whole Kubernetes in one executable: etcd, the control plane, the node agents and
// kubectl. They share nearly all of their code, so one file is a fraction of the size and of the build
// time of seven.
//
// The component is chosen by the name the executable is called by (a link named kubelet runs the
// kubelet), or else by the first argument.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	_ "time/tzdata" // CronJobs name time zones, and the machine may have no zone database.

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

// A component is built only once it is chosen: building a second one in the same process would register
// its feature gates and its version with the same global registries.
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
			fmt.Fprintf(os.Stderr, "kube: no component is named %q\n\n", os.Args[1])
		}
		fmt.Fprintf(os.Stderr, "usage: kube COMPONENT [ARGUMENT...]\n\nComponents:\n  %s\n", strings.Join(names, "\n  "))
		os.Exit(2)
	}
	// The components read os.Args themselves, and client-go takes the user agent from os.Args[0].
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
	// kubectl logs while its command is being built, before flags are parsed (plugins, kuberc), so the
	// verbosity has to be known by then.
	_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
}
