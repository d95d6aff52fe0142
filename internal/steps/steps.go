// Package steps is how jobstest drives a Runner step by step without Run, and without a
// word of it in the public API: package jobs fills it, package jobstest asks it.
package steps

// Of returns what drives a *jobs.Runner: jobstest says which methods it expects.
var Of func(runner any) any
