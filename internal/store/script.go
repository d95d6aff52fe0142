package store

import (
	"context"
	"embed"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed *.lua
var files embed.FS

// script returns the text of an arrow's script as it travels, without comments, since Redis
// reads and hashes all of it each time: its first line, for who looks at SLOWLOG or MONITOR,
// those functions of the prelude that it calls, and its code.
func script(name string) string {
	about, text := read(name)
	for _, f := range slices.Backward(prelude) {
		if f.call.MatchString(text) {
			text = f.text + text
		}
	}
	return about + text
}

// prelude are the functions that scripts share; one may call those before it.
var prelude = func() (all []function) {
	_, shared := read("prelude")
	for _, found := range regexp.MustCompile(`(?ms)^local function (\w+)\(.*?^end\n`).FindAllStringSubmatch(shared, -1) {
		all = append(all, function{regexp.MustCompile(`\b` + found[1] + `\(`), found[0]})
	}
	return all
}()

type function struct {
	call *regexp.Regexp
	text string
}

// read returns a file's first line, which is a comment, and its text without comments.
func read(name string) (first, text string) {
	file, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic(err)
	}
	first, rest, _ := strings.Cut(string(file), "\n")
	return first + "\n", strings.TrimLeft(comment.ReplaceAllString("\n"+rest, ""), "\n")
}

var comment = regexp.MustCompile(`(?m)\s*--.*$`)

// eval makes the command that runs a script.
func eval(ctx context.Context, text string, keys []string, args ...any) once {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, "eval", text, len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	return once{redis.NewCmd(ctx, append(all, args...)...)}
}

// exec sends a pipeline. Its error is the first of its commands'.
func (s *Store) exec(ctx context.Context, pipe redis.Pipeliner) error {
	_, err := pipe.Exec(ctx)
	s.shed(ctx, err)
	return err
}

// shed closes a connection to a server that has refused with READONLY: it was the master, and its
// address may lead to another one by now. go-redis does so by itself, but of a pipeline it looks at
// the first answer only, and of a transaction at none. The command that it is made to look at
// changes nothing anywhere: it is refused, for the stream ID where not for that.
func (s *Store) shed(ctx context.Context, err error) {
	if !redis.IsReadOnlyError(err) {
		return
	}
	pipe := s.rdb.Pipeline()
	_ = pipe.Process(ctx, onceString{redis.NewStringCmd(ctx, "xadd", s.keys.Stream, "0-0", "kind", "")})
	_, _ = pipe.Exec(ctx)
}

// run runs a script by itself.
func (s *Store) run(ctx context.Context, text string, keys []string, args ...any) *redis.Cmd {
	cmd := eval(ctx, text, keys, args...)
	_ = s.rdb.Process(ctx, cmd)
	return cmd.Cmd
}
