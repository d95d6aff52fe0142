package telemetry

import "sync"

// other stands for the kinds that have no name of their own in metrics, and for the errors
// that belong to no class.
const other = "_OTHER"

// kinds are those that have a name of their own in metrics: what has a handler in this
// process, and the first hundred that it enqueues. Any program may write any kind into the
// stream, and each would be a series for ever.
type kinds struct {
	met func(kind string) // is told of each that gets a name, once

	mu       sync.Mutex
	named    map[string]bool
	produced int
	early    map[string][]func(kind string) // deliveries of kinds without a name, yet
	held     int                            // of these
}

const (
	maxProduced = 100
	maxHeld     = 1000
)

// handled gives a kind a name, since it has a handler.
func (k *kinds) handled(kind string) { k.release(kind, k.add(kind, true)) }

// enqueued returns the name of a kind that this process enqueues.
func (k *kinds) enqueued(kind string) string {
	if k.add(kind, false) {
		return kind
	}
	return other
}

func (k *kinds) add(kind string, handled bool) (named bool) {
	k.mu.Lock()
	if k.named[kind] {
		k.mu.Unlock()
		return true
	}
	if !handled {
		if k.produced++; k.produced > maxProduced {
			k.produced = maxProduced
			k.mu.Unlock()
			return false
		}
	}
	if k.named == nil {
		k.named = map[string]bool{}
	}
	k.named[kind] = true
	k.mu.Unlock()
	k.met(kind)
	return true
}

// delivered counts a delivery under the name of its kind. Whether the kind has a handler is
// not known before it runs, so the first delivery waits for that.
func (k *kinds) delivered(kind string, count func(kind string)) {
	k.mu.Lock()
	named := k.named[kind]
	if !named && k.held < maxHeld {
		if k.early == nil {
			k.early = map[string][]func(string){}
		}
		k.early[kind] = append(k.early[kind], count)
		k.held++
		k.mu.Unlock()
		return
	}
	k.mu.Unlock()
	count(name(kind, named))
}

// settled returns the name of a kind of which a run is over: if it has none by now it gets
// none.
func (k *kinds) settled(kind string) string {
	k.mu.Lock()
	named := k.named[kind]
	k.mu.Unlock()
	k.release(kind, named)
	return name(kind, named)
}

// release counts the deliveries that have waited.
func (k *kinds) release(kind string, named bool) {
	k.mu.Lock()
	early := k.early[kind]
	delete(k.early, kind)
	k.held -= len(early)
	k.mu.Unlock()
	for _, count := range early {
		count(name(kind, named))
	}
}

func name(kind string, named bool) string {
	if named {
		return kind
	}
	return other
}
