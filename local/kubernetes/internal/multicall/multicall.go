// Package multicall selects the program of a multi-call executable.
package multicall

import (
	"path/filepath"
	"slices"
)

// Select returns the command line of the selected program: its name, then its arguments. The file name of
// the executable takes precedence, so that a link named kubectl always runs kubectl; otherwise the first
// argument is the name. It returns nil if neither is one of names.
func Select(args, names []string) []string {
	for i := range min(len(args), 2) {
		// Only args[0] may be a path.
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
