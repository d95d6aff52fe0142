package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/stagedoor/jobs"
)

type findingJSON struct {
	Level  jobs.Level `json:"level"`
	What   string     `json:"what"`
	Advice string     `json:"advice,omitempty"`
}

func (t *tool) doctorCommand() *cobra.Command {
	c := t.command("doctor", "What is wrong around the queue, and what to do about it", noArgs, func(ctx context.Context, _ []string) error {
		findings, err := t.client.Diagnose(ctx)
		if err != nil {
			return err
		}
		wrong := false
		for _, f := range findings {
			wrong = wrong || f.Level == jobs.LevelError
			if err := t.finding(f); err != nil {
				return err
			}
		}
		if wrong {
			return errSaid
		}
		return nil
	})
	c.Long = `Look at the server's version, eviction and persistence, at clocks, at the types of the keys, at entries
that nobody settles, consumers without a process, and more; the worst comes first. It changes nothing. The
exit code is 1 where there is an error, 0 where there are but warnings and what could not be found out.`
	return c
}

func (t *tool) finding(f jobs.Finding) error {
	if t.json {
		return t.line(findingJSON{f.Level, f.What, f.Advice})
	}
	text := fmt.Sprintf("%s  %s\n", t.coloured(f.Level), safe(f.What))
	if f.Advice != "" {
		text += strings.Repeat(" ", 9) + safe(f.Advice) + "\n"
	}
	_, err := fmt.Fprint(t.out, text)
	return err
}

// coloured is a level, on a terminal that may have colours in one.
func (t *tool) coloured(l jobs.Level) string {
	text := fmt.Sprintf("%-7s", l)
	colour, ok := map[jobs.Level]string{jobs.LevelError: "31;1", jobs.LevelWarning: "33", jobs.LevelUnknown: "36", jobs.LevelFine: "32"}[l]
	if !ok || width(t.out) == 0 || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}
