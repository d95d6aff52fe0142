package servers

import (
	"bufio"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// link is one connection through a proxy: a client's, and one to the server for it. One goroutine sends what the client
// says, one receives what the server answers, one delivers it when it is due. The link owes the client a reply to each
// command that was sent; the replies come in the order of the commands.
type link struct {
	proxy          *Proxy
	client, server *net.TCPConn
	arrived        chan arrival
	ended          chan struct{} // closed with the link
	end            sync.Once
	counting       bool // of the sender: whether a reply belongs to each command

	mu   sync.Mutex
	paid *sync.Cond
	owed []Action
	over bool // nothing more is sent or delivered
}

// arrival is a reply, or of a connection that does not speak RESP some bytes, on its way to the client.
type arrival struct {
	frame
	due time.Time
}

// linger is how long a client may take to notice that the link is over.
const linger = time.Second

func newLink(p *Proxy, client, server *net.TCPConn) *link {
	l := &link{proxy: p, client: client, server: server, counting: true}
	l.arrived, l.ended = make(chan arrival, 1024), make(chan struct{})
	l.paid = sync.NewCond(&l.mu)
	return l
}

// run ends when both sides have.
func (l *link) run() {
	defer l.close()
	in := bufio.NewReader(l.client)
	first, err := in.Peek(1)
	if err != nil {
		return
	}
	receive, send := readBytes, l.sendBytes
	if first[0] == '*' || first[0] >= 'A' && first[0] <= 'z' {
		receive, send = readReply, l.sendCommands
	}
	var rest sync.WaitGroup
	rest.Go(func() { l.receive(receive) })
	rest.Go(l.deliver)
	send(in)
	// The client says no more. What it has said is carried out, as it would be without a proxy.
	_ = l.server.CloseWrite() // fails only if the server's side is closed
	rest.Wait()
}

// close ends the link at once.
func (l *link) close() {
	l.end.Do(func() { close(l.ended) })
	_ = l.client.Close() // the peers may have closed them already
	_ = l.server.Close()
	l.stop()
}

// finish ends the link so that the client still gets what was delivered: closed with something unread, its connection
// would be reset.
func (l *link) finish() {
	l.stop()
	_ = l.server.Close() // all these fail only on what is closed already
	_ = l.client.CloseWrite()
	_ = l.client.SetReadDeadline(time.Now().Add(linger))
}

func (l *link) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	l.paid.Broadcast()
}

// sendBytes sends what the client says until it ends.
func (l *link) sendBytes(in *bufio.Reader) {
	for {
		f, err := readBytes(in)
		if err != nil || !l.send(f.raw) {
			break
		}
	}
	l.discard(in)
}

// sendCommands sends the client's commands until it ends or one of them ends the link.
func (l *link) sendCommands(in *bufio.Reader) {
	for {
		cmd, err := readCommand(in)
		if err != nil {
			if l.proxy.note(err) {
				l.finish() // what follows cannot be told apart
			}
			break
		}
		if !l.sendCommand(cmd) {
			break
		}
	}
	l.discard(in)
}

// discard reads on until the client's side ends, which finish and close see to: nothing may be left unread.
func (l *link) discard(in io.Reader) {
	_, _ = io.Copy(io.Discard, in) // that it ends is all that counts
}

// sendCommand does to a command what the proxy decides, and reports whether the next one may follow.
func (l *link) sendCommand(cmd frame) bool {
	l.counting = l.counting && !uncountable(cmd.words)
	if !l.counting || len(cmd.words) == 0 {
		return l.send(cmd.raw)
	}
	switch a := l.proxy.decide(cmd.words); a.verb {
	case cutBefore:
		if l.allPaid() {
			l.conclude(a)
		}
		return false
	case replyError:
		if !l.allPaid() {
			return false
		}
		a.call()
		return l.write([]byte(a.reply))
	default:
		l.owe(a)
		return l.send(cmd.raw) && a.verb == pass
	}
}

// conclude ends the link at an action's point.
func (l *link) conclude(a Action) {
	if !l.proxy.pause(l.ended) {
		return
	}
	a.call()
	l.finish()
	if a.done != nil {
		close(a.done)
	}
}

func (a Action) call() {
	if a.then != nil {
		a.then()
	}
}

// send passes bytes to the server unless the link is over.
func (l *link) send(b []byte) bool {
	if !l.proxy.pause(l.ended) || l.isOver() {
		return false
	}
	_, err := l.server.Write(b)
	return err == nil
}

// write passes bytes to the client. Only the deliverer calls it, and the sender while nothing is owed.
func (l *link) write(b []byte) bool {
	if !l.proxy.pause(l.ended) || l.isOver() {
		return false
	}
	_, err := l.client.Write(b)
	return err == nil
}

func (l *link) isOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// receive takes in what the server says until it ends.
func (l *link) receive(read func(*bufio.Reader) (frame, error)) {
	defer close(l.arrived)
	in := bufio.NewReader(l.server)
	for {
		f, err := read(in)
		if err != nil {
			l.proxy.note(err)
			return
		}
		select {
		case l.arrived <- arrival{f, l.proxy.due()}:
		case <-l.ended:
			return
		}
	}
}

// deliver hands what has arrived to the client, and ends the link when the server has ended.
func (l *link) deliver() {
	for a := range l.arrived {
		if !l.sleep(time.Until(a.due)) || !l.hand(a.frame) {
			break
		}
	}
	l.finish()
	for range l.arrived { // the receiver must not stand in front of a full channel
	}
}

// hand hands one reply over, or does what was decided instead.
func (l *link) hand(f frame) bool {
	a, asked := l.decided(f)
	if a.verb == swallowReply {
		l.conclude(a)
		return false
	}
	if a.verb == cutAfter {
		a.call()
	}
	if !l.write(f.raw) || a.verb == cutAfter {
		return false
	}
	if asked {
		l.pay()
	}
	return true
}

// decided returns what was decided on the command that a reply answers, and whether it answers one.
func (l *link) decided(f frame) (Action, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.push || len(l.owed) == 0 {
		return Pass, false
	}
	return l.owed[0], true
}

func (l *link) owe(a Action) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owed = append(l.owed, a)
}

func (l *link) pay() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owed = l.owed[1:]
	l.paid.Broadcast()
}

// allPaid waits until the client has the replies to all commands that were sent; it reports false if the link ends first.
func (l *link) allPaid() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.owed) > 0 && !l.over {
		l.paid.Wait()
	}
	return !l.over
}

func (l *link) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.ended:
		return false
	}
}

// readBytes reads what there is.
func readBytes(in *bufio.Reader) (frame, error) {
	b := make([]byte, 32<<10)
	n, err := in.Read(b)
	return frame{raw: b[:n]}, err
}

// uncountable reports whether from this command on the number of replies is not the number of commands.
func uncountable(words []string) bool {
	if len(words) == 0 {
		return false
	}
	switch name := strings.ToUpper(words[0]); name {
	case "CLIENT":
		return len(words) > 1 && strings.EqualFold(words[1], "REPLY")
	default:
		return slices.Contains([]string{
			"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE", "MONITOR",
		}, name)
	}
}
