package crashes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Names returns what calls commands by their names: a script by its file in folder, a command that is not a script by its
// own name. What a client sends of itself, when it makes a connection, has the name "".
func Names(folder string) (func(words []string) string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.lua"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("crashes: no scripts in %s: %w", folder, err)
	}
	scripts := map[string]string{} // by their first line, which travels in front
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("crashes: %w", err)
		}
		first, _, _ := strings.Cut(string(text), "\n")
		scripts[first] = filepath.Base(file)
	}
	return func(words []string) string {
		name := strings.ToLower(words[0])
		switch {
		case greeting(name):
			return ""
		case name == "eval":
			first, _, _ := strings.Cut(words[1], "\n")
			if file := scripts[first]; file != "" {
				return file
			}
		case Blocks(words):
			return name + " block"
		}
		return name
	}, nil
}
