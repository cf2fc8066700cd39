// Package multicall decides which of several programs in one executable a command line asks for.
package multicall

import (
	"path/filepath"
	"slices"
)

// Select returns the command line of the program that args ask for: its name first, then its own
// arguments. The name the executable was called by wins, so that a link named kubectl is a kubectl
// whatever follows it; otherwise the first argument names the program. It returns nil if neither is
// one of names.
func Select(args, names []string) []string {
	for i := range min(len(args), 2) {
		// Only the call name may be a path: an argument has to be the bare name.
		name := args[i]
		if i == 0 {
			name = filepath.Base(name)
		}
		if slices.Contains(names, name) {
			return append([]string{name}, args[i+1:]...)
		}
	}
	return nil
}
