// Command csi-sidecars is a multi-call executable of the sidecars of CSI drivers and the snapshot controller. They share
// most of their code, so one executable has a quarter of the size of four.
//
// The program is selected by the file name of the executable, or else by the first argument.
//
// Upstream exports no function that runs a sidecar. The build copies its package main into internal/NAME, where it is
// package sidecar with the function Main; see local/README.md.
package main

import (
	"fmt"
	"os"
	"strings"

	provisioner "odc.dev/local/csi/internal/csi-provisioner"
	resizer "odc.dev/local/csi/internal/csi-resizer"
	snapshotter "odc.dev/local/csi/internal/csi-snapshotter"
	"odc.dev/local/csi/internal/flags"
	"odc.dev/local/csi/internal/multicall"
	snapshotcontroller "odc.dev/local/csi/internal/snapshot-controller"
)

var programs = []struct {
	name string
	run  func()
}{
	{"csi-provisioner", provisioner.Main},
	{"csi-resizer", resizer.Main},
	{"csi-snapshotter", snapshotter.Main},
	{"snapshot-controller", snapshotcontroller.Main},
}

func main() {
	names := make([]string, len(programs))
	for i, p := range programs {
		names[i] = p.name
	}
	args := multicall.Select(os.Args, names)
	if args == nil {
		if len(os.Args) > 1 {
			fmt.Fprintf(os.Stderr, "csi-sidecars: unknown program %q\n\n", os.Args[1])
		}
		fmt.Fprintf(os.Stderr, "usage: csi-sidecars PROGRAM [ARGUMENT...]\n\nPrograms:\n  %s\n", strings.Join(names, "\n  "))
		os.Exit(2)
	}
	// The programs read os.Args, and client-go derives the user agent from os.Args[0].
	os.Args = args
	flags.Select(args[0])
	for _, p := range programs {
		if p.name == args[0] {
			p.run()
		}
	}
}
