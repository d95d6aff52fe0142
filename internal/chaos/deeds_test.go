//go:build unix

package chaos

import (
	"context"
	"errors"
	"hash/fnv"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

// carryOut does what the plan says, each at its time, and returns when all is over.
func (f *fleet) carryOut(plan []Event) {
	began := time.Now()
	var deeds sync.WaitGroup
	for _, e := range plan {
		time.Sleep(time.Until(began.Add(e.At)))
		deeds.Go(func() { f.journal.count(e.Deed, f.do(e)) })
	}
	deeds.Wait()
}

// do does one deed, and reports whether it came to it.
func (f *fleet) do(e Event) bool {
	switch e.Deed {
	case Snip:
		f.net.Cut()
	case SnipReply:
		f.net.Swallow(servers.Command([]string{"xadd", "exec"}[int(e.At/time.Millisecond)%2]))
	case ReplayDead:
		f.replay()
	case StopRedis, KillRedis, FreezeRedis:
		return f.disturbRedis(e)
	default:
		return f.members[e.Worker].suffer(e)
	}
	return true
}

// suffer has a deed done to a member, unless another is under way.
func (m *member) suffer(e Event) bool {
	p := m.life.Load()
	if p == nil || !p.alive() || !m.busy.TryLock() {
		return false
	}
	defer m.busy.Unlock()
	switch e.Deed {
	case Kill:
		return m.kill(p)
	case Pause:
		m.pause(p, e.For)
	case Cut:
		m.cutOff(p, m.proxy.Cut)
	case Swallow:
		m.proxy.Swallow(servers.Command("eval"))
	case Stall:
		m.cutOff(p, func() {
			m.proxy.Stall(true)
			time.Sleep(e.For)
			m.proxy.Stall(false)
		})
	case Roll:
		m.roll(p, "")
	case Blind:
		m.roll(p, blindness(e))
	}
	return true
}

// blindness are the kinds that a worker of an older deploy does not know.
func blindness(e Event) string {
	if int(e.At/time.Millisecond)%2 == 0 {
		return Steady + "," + EveryOne
	}
	return Flaky + "," + Deadly + "," + Sleepy
}

// pause stops a process, and lets it go on.
func (m *member) pause(p *process, d time.Duration) {
	from := time.Now()
	p.signal(syscall.SIGSTOP)
	time.Sleep(d)
	p.signal(syscall.SIGCONT)
	m.fleet.journal.trouble(Stopped, p.name, from, time.Now())
}

// cutOff notes for whom and when the connections were disturbed.
func (m *member) cutOff(p *process, act func()) {
	from := time.Now()
	act()
	m.fleet.journal.trouble(Cutoff, p.name, from, time.Now())
}

// roll has a process leave; the next one does not know some kinds.
func (m *member) roll(p *process, blind string) {
	m.blind.Store(blind)
	if !p.stop() {
		m.fleet.Errorf("worker %s does not leave:\n%s", p.name, p.log)
		p.kill()
	}
}

// kill kills a process, unless one of its jobs is at its last permitted delivery: then nobody could tell it from a
// killer. To look, the process is stopped; and what it had asked of Redis before that has an answer first. After the
// kill it is looked again, for what could slip through.
func (m *member) kill(p *process) bool {
	f := m.fleet
	if f.o.spare {
		from := time.Now()
		p.signal(syscall.SIGSTOP)
		time.Sleep(20 * time.Millisecond)
		last, err := f.atTheirLast(p)
		if err != nil || len(last) > 0 {
			p.signal(syscall.SIGCONT)
			f.journal.trouble(Stopped, p.name, from, time.Now())
			return false
		}
	}
	p.kill()
	var hit []string
	f.eventually(time.Minute, "Redis says what a dead worker owns", func() (ok bool) {
		var err error
		hit, err = f.atTheirLast(p)
		return err == nil
	})
	f.journal.note(func(h *History) {
		for _, id := range hit {
			h.Hit[id] = true
		}
	})
	return true
}

// disturbRedis takes Redis away for a while, unless it is away.
func (f *fleet) disturbRedis(e Event) bool {
	if !f.outage.TryLock() {
		return false
	}
	defer f.outage.Unlock()
	away, back := f.redis.Stop, f.redis.Start
	switch e.Deed {
	case KillRedis:
		away = f.redis.Kill
	case FreezeRedis:
		away, back = f.redis.Pause, f.redis.Resume
	}
	from := time.Now()
	err := away()
	gone := time.Now()
	lost := f.loss(e.Deed, from)
	time.Sleep(e.For)
	coming := time.Now()
	if err = errors.Join(err, back()); err != nil {
		f.Error(err)
	}
	to := time.Now()
	f.journal.trouble(Outage, "", from, to)
	f.journal.trouble(Gone, "", gone, coming)
	if !lost.IsZero() {
		f.journal.trouble(Loss, "", lost, to)
	}
	return true
}

// loss is since when Redis may have lost what was written; zero: it has lost nothing.
func (f *fleet) loss(d Deed, from time.Time) time.Time {
	switch {
	case d != KillRedis || f.o.redis == "always":
		return time.Time{}
	case f.aof != nil:
		since, err := f.aof.cut()
		if err != nil {
			f.Error(err)
		}
		return since
	}
	return from.Add(-2 * time.Second) // so long may appendfsync everysec put off writing
}

// produce sends jobs, one to twenty at a time, over so long a time.
func (f *fleet) produce(scripts []Script, length time.Duration) {
	began, sent, total := time.Now(), 0, len(scripts)
	for n := 1; sent < total; n = n%20 + 1 {
		size := 1
		if n%4 == 0 {
			size = min(n, total-sent)
		}
		time.Sleep(time.Until(began.Add(length * time.Duration(sent) / time.Duration(total))))
		f.send(scripts[sent : sent+size])
		sent += size
	}
}

// send enqueues until all are in, or may be.
func (f *fleet) send(scripts []Script) {
	list := make([]jobs.Job, len(scripts))
	for i, s := range scripts {
		list[i] = s.Job()
	}
	for len(list) > 0 {
		from := time.Now()
		err := f.client.Enqueue(context.Background(), list...)
		in, perhaps := len(list), 0
		if e, ok := errors.AsType[*jobs.EnqueueError](err); ok {
			in, perhaps = e.Queued, e.Uncertain
		}
		acked := time.Now()
		f.journal.note(func(h *History) {
			for i := range in + perhaps {
				h.Sent = append(h.Sent, Sent{ID: list[i].ID, Script: scripts[i], At: from, Acked: acked, Certain: i < in})
			}
		})
		list, scripts = list[in+perhaps:], scripts[in+perhaps:]
		if len(list) > 0 {
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// replay has two operators replay the same half of the dead letters at once.
func (f *fleet) replay() {
	letters, err := f.letters()
	if err != nil {
		return // another time
	}
	scripts := map[string]Script{}
	f.journal.note(func(h *History) {
		for _, s := range h.Sent {
			scripts[s.ID] = s.Script
		}
	})
	for _, l := range letters {
		if s, known := scripts[l.ID]; known && chosen(l.ID) {
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() { f.replayOne(l, s) })
			}
			both.Wait()
		}
	}
}

// chosen are half of all jobs.
func chosen(id string) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // a hash takes everything
	return h.Sum32()%2 == 0
}

func (f *fleet) replayOne(l buried, s Script) {
	given := l.Generation + 1
	err := f.client.DeadLetters().Replay(context.Background(), l.entry, jobs.ReplayOptions{Set: s.Correction(given)})
	certain := err == nil
	if !certain && !errors.Is(err, jobs.ErrUncertain) {
		return // refused, or the other was quicker
	}
	f.journal.note(func(h *History) {
		h.Replays = append(h.Replays, Replay{Letter: l.Letter, Given: given, Acked: time.Now(), Certain: certain})
	})
}

// buried is a dead letter and its stream ID.
type buried struct {
	Letter
	entry string
}

// letters are the dead letters there are.
func (f *fleet) letters() (all []buried, err error) {
	for d, err := range f.direct.DeadLetters().List(context.Background(), jobs.Filter{}) {
		if err != nil {
			return nil, err
		}
		generation, _ := strconv.Atoi(d.Fields["generation"]) // absent in what is not ours
		all = append(all, buried{Letter{d.ID, d.Kind, generation, d.Attempts, d.Reason, d.Died}, d.Entry})
	}
	return all, nil
}
