// Package flags separates the flags of programs in one executable. Each of them registers its flags in flag.CommandLine
// while its package is initialized, and most names are the same.
package flags

import "flag"

var sets = map[string]*flag.FlagSet{}

// New replaces flag.CommandLine by an empty set, in which the program registers its flags.
func New(program string) *flag.FlagSet {
	flag.CommandLine = flag.NewFlagSet(program, flag.ExitOnError)
	sets[program] = flag.CommandLine
	return flag.CommandLine
}

// Select makes the flags of the program those of the command line.
func Select(program string) {
	flag.CommandLine = sets[program]
}
