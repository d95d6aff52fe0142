package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

// A morning: what is dead, why, corrected, replayed, and who did it.
func TestDeadLetters(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		for _, args := range []string{"dead ls", "dead replay --all --yes", "dead discard --all --yes", "dead export", "audit ls"} {
			has(t, d.try(strings.Fields(args)...).err, "nothing found")
			d.do(exitPartly, strings.Fields(args)...)
		}
		render := raw("render_tickets")
		d.die("label printer: 14C is no seat", render.Job(jobs.Fields{"label": "14C", "order_id": "4471"}), render.Job(jobs.Fields{"label": "15C"}))
		d.die("550 no such mailbox\nat once", raw("send_tickets").Job(jobs.Fields{"email": "x@example.com"}))
		entries := d.entries()

		list := strings.Split(strings.TrimSpace(d.do(exitDone, "dead", "ls")), "\n")
		if len(list) != 4 || !strings.HasPrefix(list[1], entries[2]) || !strings.HasPrefix(list[3], entries[0]) {
			t.Fatalf("the newest is not first: %q", list)
		}
		has(t, list[0], "ENTRY", "DIED", "KIND", "TRIED", "ERROR")
		has(t, list[1], "send_tickets", "550 no such mailbox …")
		for _, c := range []struct {
			args string
			want []string
		}{
			{"--kind render_tickets", []string{entries[1], entries[0]}},
			{"--error mailbox", entries[2:]},
			{"--since 1h", []string{entries[2], entries[1], entries[0]}},
			{"--until +1h --limit 1", entries[2:]},
			{"--before " + entries[1], entries[:1]},
		} {
			var got []string
			for _, l := range d.objects(append([]string{"dead", "ls"}, strings.Fields(c.args)...)...) {
				got = append(got, l["entry"].(string))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s: %v, want %v", c.args, got, c.want)
			}
		}
		d.do(exitPartly, "dead", "ls", "--until", "1h")

		has(t, d.do(exitDone, "dead", "show", entries[0]), entries[0], "render_tickets", "14C", "4471", "label printer: 14C is no seat", "failed")
		if s := d.try("dead", "show", entries[0], "1-0"); s.code != exitPartly || !strings.Contains(s.out, "14C") || !strings.Contains(s.err, "not found") {
			t.Errorf("one that is there and one that is not: %+v", s)
		}
		d.morning(entries)
	})
}

func (d *desk) morning(entries []string) {
	t := d.t
	dry := d.do(exitDone, "dead", "replay", "--kind", "render_tickets", "--set", "label=14-C", "--rate", "30/m", "--dry-run")
	has(t, dry, entries[0], entries[1], "Would replay 2 dead letters of render_tickets, with label=14-C, in about 4s. Nothing was done.")
	if s := d.stats(); s.Dead != 3 || s.Ready != 0 {
		t.Fatalf("a dry run has done something: %+v", s)
	}
	s := d.try("dead", "replay", "--kind", "render_tickets")
	if s.code != exitUsage || d.stats().Dead != 3 {
		t.Fatalf("replay of many without a terminal and without --yes: %+v", s)
	}
	has(t, s.err, "Replay 2 dead letters of render_tickets?", "--yes")

	has(t, d.do(exitDone, "dead", "replay", entries[0], "--set", "label=14-C", "--as", "ines"), "replayed 1 of 1")
	has(t, d.do(exitDone, "dead", "replay", "--kind", "render_tickets", "--yes", "--as", "bo"), "replayed 1 of 1")
	if s := d.stats(); s.Dead != 1 || s.Ready != 2 {
		t.Fatalf("after two replays: %+v", s)
	}
	got, err := d.rdb.XRange(t.Context(), d.prefix+"jobs", "-", "+").Result()
	must(t, err)
	if v := got[0].Values; v["label"] != "14-C" || v["order_id"] != "4471" || v["attempts"] != "0" || v["error"] != nil {
		t.Errorf("replayed as %v", v)
	}
	if s := d.try("dead", "replay", entries[0], entries[2]); s.code != exitPartly || d.stats().Dead != 0 {
		t.Errorf("one that is gone and one that is not: %+v", s)
	}

	trail := d.objects("audit", "ls")
	if len(trail) != 3 || trail[2]["who"] != "ines" || trail[1]["who"] != "bo" || trail[0]["who"] != actor() {
		t.Fatalf("the trail is %v", trail)
	}
	if a := trail[2]; a["what"] != "replay" || a["entry"] != entries[0] || fmt.Sprint(a["set"]) != "[label]" {
		t.Errorf("recorded as %v", a)
	}
	has(t, d.do(exitDone, "audit", "ls", "--limit", "1"), "replay", "send_tickets", entries[2])
}

// A list that ends at its limit says so, also to a program's user: beside the list, never in it.
func TestAListThatEndsAtItsLimit(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		d.kill(3)
		d.do(exitDone, "dead", "discard", d.entries()[0], "-y")
		d.do(exitDone, "dead", "replay", d.entries()[0])
		d.later("a", "b")
		record := d.objects("audit", "--limit", "1")[0]["record"].(string)
		place := ""
		for j, err := range d.client.Delayed().ListFrom(t.Context(), time.Time{}) {
			must(t, err)
			place = j.Cursor
			break
		}
		for args, says := range map[string]string{
			"dead ls --limit 1":    "There may be more: --before " + d.entries()[0] + ", or --limit 0 for all.\n",
			"audit --limit 1":      "There may be more: --before " + record + ", or --limit 0 for all.\n",
			"audit ls --limit 1":   "There may be more: --before " + record + ", or --limit 0 for all.\n",
			"delayed ls --limit 1": "There may be more: --after " + place + ", or --limit 0 for all.\n",
		} {
			for _, form := range []string{"", " --json"} {
				if s := d.try(strings.Fields(args + form)...); s.code != exitDone || s.err != says {
					t.Errorf("%s%s: %+v", args, form, s)
				}
			}
			if s := d.try(strings.Fields(strings.Replace(args, "1", "9", 1))...); s.err != "" {
				t.Errorf("%s, of 9: %+v", args, s)
			}
		}
	})
}

func TestDiscardIsForGood(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		d.die("no", raw("a").Job(nil), raw("a").Job(nil), raw("b").Job(nil))
		entries := d.entries()
		if s := d.try("dead", "discard", entries[0]); s.code != exitUsage || d.stats().Dead != 3 {
			t.Fatalf("without --yes: %+v", s)
		}
		has(t, d.do(exitDone, "dead", "discard", entries[0], "-y"), "discarded 1 of 1")
		got := parsed(t, d.do(exitDone, "dead", "discard", "--kind", d.letter(entries[1]).Kind, "-y", "--json"))
		if got[0]["discarded"] != 1. || got[0]["left"] != 0. {
			t.Errorf("got %v", got)
		}
		if s := d.stats(); s.Dead != 1 || s.Ready != 0 {
			t.Errorf("left: %+v", s)
		}
	})
}

func (d *desk) letter(entry string) jobs.DeadLetter {
	l, err := d.client.DeadLetters().Get(d.t.Context(), entry)
	must(d.t, err)
	return l
}

func TestExport(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		d.die("no", raw("a").Job(jobs.Fields{"n": "1"}), raw("a").Job(jobs.Fields{"bytes": "\xff\x00", "n\xfe": ""}))
		file := filepath.Join(t.TempDir(), "dead.json")
		d.do(exitPartly, "dead", "export", "--kind", "nobody", "-o", file)
		d.do(exitRedis, "dead", "export", "--redis", "redis://127.0.0.1:1", "-o", file)
		d.do(exitDone, "dead", "export", "-o", file)
		text, err := os.ReadFile(file)
		must(t, err)
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("others may read it: %v, %v", info.Mode(), err)
		}
		if piped := d.do(exitDone, "dead", "export"); piped != string(text) {
			t.Errorf("the file has %q, the pipe %q", text, piped)
		}
		plain, odd := map[string]any{"n": "1"}, map[string]any{"Ynl0ZXM=": "/wA=", base64.StdEncoding.EncodeToString([]byte("n\xfe")): ""}
		found := 0
		for _, l := range parsed(t, string(text)) {
			if fmt.Sprint(l["fields"]) == fmt.Sprint(plain) || fmt.Sprint(l["fields_base64"]) == fmt.Sprint(odd) {
				found++
			}
		}
		if found != 2 {
			t.Errorf("fields are lost in %s", text)
		}
		if s := d.try("dead", "export", "-o", file); s.code != exitUsage {
			t.Errorf("a file that is there is written over: %+v", s)
		}
	})
}

// Contents that would move the cursor, change colours or turn the line round are shown as text.
func TestHostileContents(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		const evil = "\x1b[2J\x1b]0;owned\x07\u009b31m\u202eabc\r\x7f\u200b\U000e0041\u2028end"
		job := raw("evil").Job(jobs.Fields{"f": evil, "g\x1b[1m": evil, "bin": "ok"})
		job.ID, job.RequestID = "id\x1b[3m", evil
		d.die(evil+"\n"+evil, job)
		later := raw("evil").Job(jobs.Fields{"f": evil}).In(time.Hour)
		later.ID = "later\x1b[3m"
		must(t, d.client.Enqueue(t.Context(), later))
		entry := d.entries()[0]
		for _, args := range [][]string{
			{"dead", "ls"}, {"dead", "show", entry}, {"dead", "export"}, {"delayed", "ls"}, {"dead", "replay", entry, "--dry-run"},
			{"delayed", "ls", "--json"}, {"dead", "ls", "--json"}, {"dead", "show", entry, "--json"},
			{"dead", "replay", entry, "--as", evil}, {"audit", "ls"}, {"audit", "ls", "--json"}, {"stats", "--by-kind"},
			{"delayed", "run-now", "later\x1b[3m"}, {"delayed", "run-now", "gone\x1b[3m"}, {"enqueue", "k\x1b[3m"},
		} {
			s := d.try(args...)
			for _, r := range s.out + s.err {
				if r != '\n' && !unicode.IsPrint(r) {
					t.Errorf("%q prints %q raw: %q", args, r, s.out+s.err)
					break
				}
			}
			if slices.Contains(args, "--json") && args[0] == "dead" {
				l := parsed(t, s.out)[0]
				if l["fields"].(map[string]any)["f"] != evil || l["id"] != "id\x1b[3m" {
					t.Errorf("%q: what was escaped does not come back: %v", args, l)
				}
			}
		}
	})
}

// replaySlowly starts a replay of all, at five in a second; end waits for what it says and its exit code.
func (d *desk) replaySlowly() (cmd *exec.Cmd, end func() (said map[string]any, code int)) {
	d.t.Helper()
	cmd = d.command("dead", "replay", "--all", "--yes", "--rate", "5/s", "--json")
	out, err := cmd.StdoutPipe()
	must(d.t, err)
	must(d.t, cmd.Start())
	return cmd, func() (map[string]any, int) {
		text, err := io.ReadAll(out)
		must(d.t, err)
		_ = cmd.Wait() // its exit code is what counts
		return parsed(d.t, string(text))[0], cmd.ProcessState.ExitCode()
	}
}

// A replay keeps its pace, and Ctrl-C ends it between two letters.
func TestReplayIsInterrupted(t *testing.T) {
	t.Parallel()
	d := onRedis(t)
	const total = 30
	d.kill(total)
	began := time.Now()
	cmd, end := d.replaySlowly()
	eventually(t, "some are replayed", func() bool { return d.stats().Ready >= 4 })
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Errorf("4 of them took %s at 5 in a second", took)
	}
	must(t, cmd.Process.Signal(syscall.SIGINT))
	said, code := end()
	if code != exitInterrupted {
		t.Errorf("exit code %d", code)
	}
	s := d.stats()
	if said["replayed"] != float64(s.Ready) || said["left"] != float64(s.Dead) || s.Ready+s.Dead != total || s.Dead == 0 {
		t.Errorf("it says %v, and there are %+v", said, s)
	}
}

// What dies again at once is not replayed again.
func TestReplayEndsWhereJobsDieAgain(t *testing.T) {
	t.Parallel()
	d := onRedis(t)
	const total = 20
	d.kill(total)
	var runs atomic.Int64
	died := make(chan struct{}, 10*total)
	r := jobs.NewRunner(d.client, jobs.Config{
		Logger: slog.New(slog.DiscardHandler),
		OnDead: func(context.Context, jobs.DeadLetter) { died <- struct{}{} },
	})
	jobs.Handle(r, raw("k"), func(context.Context, jobs.Fields) error { runs.Add(1); return errors.New("again") })
	d.run(r)
	has(t, d.do(exitDone, "dead", "replay", "--all", "--yes", "--rate", "100/s"), "replayed 20 of 20")
	for range total {
		<-died
	}
	if n := runs.Load(); n != total || d.stats().Dead != total {
		t.Errorf("%d runs, %+v", n, d.stats())
	}
}

// What cannot be replayed is said, and the others are.
func TestReplayGoesOnPastWhatCannotBe(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		must(t, d.rdb.ZAdd(t.Context(), d.prefix+"delayed", z(1, "rubbish")).Err())
		d.bury(2, "no", raw("k").Job(nil))
		has(t, d.do(exitDone, "dead", "replay", "--all", "--dry-run"), "1 of them cannot be")
		s := d.try("dead", "replay", "--all", "--yes")
		if s.code != exitPartly || d.stats().Ready != 1 {
			t.Errorf("%+v, %+v", s, d.stats())
		}
		has(t, s.out, "replayed 1 of 2; 1 could not be")
		has(t, s.err, "never be read as a job")
	})
}

// Of two people who replay the same letters each replays some, and none is replayed twice.
func TestTwoPeopleReplay(t *testing.T) {
	t.Parallel()
	d := onRedis(t)
	const total = 10
	d.kill(total)
	_, end := d.replaySlowly()
	eventually(t, "one is replayed", func() bool { return d.stats().Ready >= 1 })
	d.try("dead", "replay", "--all", "--yes")
	said, code := end()
	if n := said["gone"].(float64); n < 1 || said["replayed"].(float64)+n != total || code != exitPartly {
		t.Errorf("the slow one says %v, and ends with %d", said, code)
	}
	if s := d.stats(); s.Ready != total || s.Dead != 0 {
		t.Errorf("got %+v", s)
	}
}

// Who names a letter twice has not met anybody else, and the order is as named.
func TestALetterIsNamedTwice(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		d.kill(3)
		entries := d.entries()
		named := []string{entries[1], entries[0], entries[1], entries[0]}
		has(t, d.do(exitDone, append([]string{"dead", "replay", "--dry-run"}, named...)...), "Would replay 2 dead letters")
		ids := d.letter(entries[1]).ID + " " + d.letter(entries[0]).ID
		s := d.try(append([]string{"dead", "replay", "-y"}, named...)...)
		if s.code != exitDone || s.out != "replayed 2 of 2\n" || s.err != "" {
			t.Errorf("got %+v", s)
		}
		ready, err := d.rdb.XRange(t.Context(), d.prefix+"jobs", "-", "+").Result()
		must(t, err)
		if len(ready) != 2 || fmt.Sprint(ready[0].Values["job_id"], " ", ready[1].Values["job_id"]) != ids {
			t.Errorf("ready are %v, want %s", ready, ids)
		}
		has(t, d.do(exitDone, "dead", "discard", entries[2], entries[2], "-y"), "discarded 1 of 1\n")
	})
}

// A letter whose answer never came is not said to be left as it was.
func TestALostReplyIsSaid(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		d.kill(4)
		proxy := servers.NewProxy(t, d.rdb.Options().Addr)
		d.url = "redis://" + proxy.Addr()
		lost := proxy.Swallow(servers.Command("eval"))
		s := d.try("dead", "replay", "--all", "-y")
		<-lost
		if s.code != exitRedis || s.out != "replayed 0 of 4; 1 may have been, since no answer came; 3 are left as they were\n" {
			t.Errorf("got %+v", s)
		}
		lost = proxy.Swallow(servers.Command("eval"))
		s = d.try("dead", "discard", "--all", "-y", "--json")
		<-lost
		want := map[string]any{"discarded": 0., "gone": 0., "refused": 0., "uncertain": 1., "left": 2.}
		if got := parsed(t, s.out)[0]; s.code != exitRedis || !maps.Equal(got, want) {
			t.Errorf("got %v, exit code %d, %s", got, s.code, s.err)
		}
		if s := d.stats(); s.Ready != 1 || s.Dead != 2 {
			t.Errorf("left: %+v", s)
		}
	})
}

// What is misspelled in --set is said, before it is done where somebody is asked.
func TestReplaySaysWhichFieldsAreNew(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		d.die("no", raw("k").Job(jobs.Fields{"seat": "14C"}), raw("k").Job(nil))
		set := []string{"dead", "replay", "--set", "seat=14-C", "--set", "seta=14-C"}
		const says = "with seat=14-C (a field that 1 of 2 did not have), with seta=14-C (a field that 2 of 2 did not have)"
		has(t, d.do(exitDone, append(set, "--all", "--dry-run")...), says)
		has(t, d.try(append(set, "--all")...).err, says+"? Without a terminal")
		has(t, d.try(append(set, d.entries()[1])...).err, "seta=14-C (a field that 1 of 1 did not have)")
		if s := d.try("dead", "replay", "--all", "--yes", "--set", "seat=14-C"); s.code != exitDone || s.err != "" {
			t.Errorf("a field that all have: %+v", s)
		}
	})
}

// A letter that is gone was taken by somebody.
func TestWhoTookALetter(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		d.kill(2)
		entries := d.entries()
		d.do(exitDone, "dead", "discard", entries[0], "-y", "--as", "ines")
		d.do(exitDone, "dead", "replay", entries[1], "--as", "bo")
		for _, verb := range []string{"show", "replay"} {
			s := d.try("dead", verb, entries[0])
			if s.code != exitPartly {
				t.Errorf("%s: %+v", verb, s)
			}
			has(t, s.err, "not found (discard by ines, ")
		}
		trail := d.objects("audit", "--entry", entries[1])
		if len(trail) != 1 || trail[0]["who"] != "bo" || trail[0]["entry"] != entries[1] {
			t.Errorf("the trail of one letter: %v", trail)
		}
		if all := d.objects("audit"); len(all) != 2 {
			t.Errorf("the whole trail: %v", all)
		}
		d.do(exitPartly, "audit", "ls", "--entry", "1-0")
	})
}

// What is megabytes long fills no terminal, and what is due in the year 58884 does not end a list of JSON.
func TestOddContents(t *testing.T) {
	each(t, func(t *testing.T, d *desk) {
		d.die("no", raw("k").Job(jobs.Fields{strings.Repeat("n", 200): "long", "x": "1"}))
		has(t, d.do(exitDone, "dead", "show", d.entries()[0]), "\n  x"+strings.Repeat(" ", 31)+"1\n")
		for i, due := range []float64{1796021638138, -1e300} {
			must(t, d.rdb.ZAdd(t.Context(), d.prefix+"delayed", z(due, fmt.Sprintf(`{"kind":"k","job_id":"%d"}`, i))).Err())
		}
		all := d.objects("delayed", "ls")
		if len(all) != 2 || all[0]["due"] != "0001-01-01T00:00:00Z" || all[1]["due"] != "9999-12-31T23:59:59Z" {
			t.Errorf("got %v", all)
		}
	})
}
