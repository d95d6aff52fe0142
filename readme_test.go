package jobs_test

import (
	"os"
	"strings"
	"testing"
)

// The README's first program is examples/hello, which is compiled.
func TestReadmeShowsACompiledProgram(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("examples/hello/main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(program), "package main\n")
	if !strings.Contains(string(readme), "```go\npackage main\n"+code+"```") {
		t.Error("the README's quick start is not examples/hello/main.go")
	}
}
