package servers

import (
	"runtime"
	"strings"
	"testing"
)

func TestServersEndWithAKilledProcess(t *testing.T) {
	t.Parallel()
	said, cmd := shareAndWait(t)
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
	notListening(t, said)
	for _, s := range said {
		dir := strings.Fields(s)[2]
		eventually(t, dir+" is removed", func() bool { return !exists(dir) })
	}
}

// The kernel takes the end of the thread that started a process for its parent's death.
func TestServersOutliveTheThreadThatAskedForThem(t *testing.T) {
	t.Parallel()
	started := make(chan *Redis)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		r, err := StartRedis(RedisOptions{})
		if err != nil {
			t.Error(err)
		}
		thread := "/proc/self/task/" + tid()
		go func() {
			eventually(t, "the thread has ended", func() bool { return !exists(thread) })
			started <- r
		}()
	}()
	r := <-started
	if r == nil {
		t.FailNow()
	}
	defer func() { must(t, r.Close()) }()
	must(t, r.Client(t).Ping(t.Context()).Err())
}
