package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/store"
)

// server is where Redis is, as flags and environment say it.
type server struct {
	url, prefix, user string
	sentinels         []string
	master            string
	cluster           []string
	timeout           time.Duration

	tls               bool
	ca, cert, key, as string
}

func (t *tool) flags(f *pflag.FlagSet) {
	s := &t.server
	f.StringVar(&s.url, "redis", "", "redis:// or rediss:// `URL` (REDIS_URL, else redis://localhost:6379)")
	f.StringVar(&s.prefix, "prefix", os.Getenv("JOBS_PREFIX"), "what stands in front of every key (JOBS_PREFIX)")
	f.StringVar(&s.user, "user", "", "ACL user (else the URL's)")
	f.StringSliceVar(&s.sentinels, "sentinel", nil, "sentinels, `host:port,…`; user, password and database come from the URL")
	f.StringVar(&s.master, "sentinel-master", "", "the `name` under which the sentinels know the master")
	f.StringSliceVar(&s.cluster, "cluster", nil, "nodes of a cluster, `host:port,…`; user and password come from the URL")
	f.DurationVar(&s.timeout, "timeout", 5*time.Second, "for connecting, and for each answer")
	f.BoolVar(&s.tls, "tls", false, "use TLS, as with rediss://")
	f.StringVar(&s.ca, "tls-ca", "", "`file` with the certificates to trust")
	f.StringVar(&s.cert, "tls-cert", "", "`file` with the client's certificate")
	f.StringVar(&s.key, "tls-key", "", "`file` with its key")
	f.StringVar(&s.as, "tls-name", "", "the server's `name` in its certificate")
	f.StringVar(&t.as, "as", actor(), "who you are, for the audit trail")
	f.BoolVar(&t.json, "json", false, "print JSON: of a list one object a line")
	f.BoolVarP(&t.yes, "yes", "y", false, "do not ask")
}

// actor is user@host, as far as these are known: the person, where sudo says who that is.
func actor() string {
	host, _ := os.Hostname()
	name := os.Getenv("SUDO_USER")
	if u, err := user.Current(); err == nil {
		name = cmp.Or(name, u.Username)
	}
	return cmp.Or(name, os.Getenv("USER"), "?") + "@" + host
}

// connect makes the clients; nothing is sent yet.
func (t *tool) connect() error {
	rdb, err := t.server.client()
	if err != nil {
		return err
	}
	t.rdb, t.client = rdb, jobs.NewClient(rdb, jobs.Options{Prefix: t.server.prefix})
	return nil
}

func (s server) client() (redis.UniversalClient, error) {
	o, err := redis.ParseURL(s.address())
	if err != nil {
		return nil, usage("the URL of Redis: %s", hidden(err))
	}
	o.Username = cmp.Or(s.user, o.Username)
	o.Password = cmp.Or(o.Password, os.Getenv("REDIS_PASSWORD"))
	if o.TLSConfig, err = s.secure(o.TLSConfig); err != nil {
		return nil, err
	}
	switch {
	case o.Username != "" && o.Password == "": // go-redis would ask as nobody
		return nil, usage("%s has no password: it comes from the URL or REDIS_PASSWORD", s.who())
	case s.timeout <= 0:
		return nil, usage("--timeout is more than 0, as in 5s")
	case len(s.sentinels) > 0 && len(s.cluster) > 0:
		return nil, usage("--sentinel and --cluster exclude each other")
	case (len(s.sentinels) > 0) != (s.master != ""):
		return nil, usage("--sentinel and --sentinel-master go together")
	case len(s.cluster) > 0 && !tagged(s.prefix):
		return nil, usage("on a cluster --prefix carries a hash tag, as in {stagedoor}:")
	}
	return redis.NewUniversalClient(s.universal(o)), nil
}

// who is the user; one in the URL may be a password that somebody has put in its place.
func (s server) who() string {
	if s.user == "" {
		return "the URL's user"
	}
	return "the user " + s.user
}

// address is the URL that flags and environment name, which may leave redis:// away.
func (s server) address() string {
	text := cmp.Or(s.url, os.Getenv("REDIS_URL"), "localhost:6379")
	if !strings.Contains(text, "://") {
		return "redis://" + text
	}
	return text
}

// where is what to call the server by: nothing of a password.
func (s server) where() string {
	switch o, err := redis.ParseURL(s.address()); {
	case len(s.cluster) > 0:
		return "the cluster of " + strings.Join(s.cluster, ",")
	case s.master != "":
		return s.master + ", of " + strings.Join(s.sentinels, ",")
	case err != nil:
		return "Redis"
	case o.DB != 0:
		return fmt.Sprintf("%s, database %d", o.Addr, o.DB)
	default:
		return o.Addr
	}
}

// hint is what to look at, for a person who was just woken; "" where the error says enough.
func (t *tool) hint(ctx context.Context, err error) string {
	s, text := t.server, err.Error()
	said := s.url != "" || os.Getenv("REDIS_URL") != "" || s.master != "" || len(s.cluster) > 0
	timeout, ok := errors.AsType[net.Error](err)
	switch has := func(part string) bool { return strings.Contains(text, part) }; {
	case errors.Is(err, errNothing), errors.Is(err, jobs.ErrNotFound):
		return t.strange(ctx)
	case has("NOAUTH"), has("WRONGPASS"):
		return "the password comes from the URL or REDIS_PASSWORD, the user from the URL or --user"
	case has("MOVED "), has("CROSSSLOT"):
		return s.where() + " is a node of a cluster: say --cluster host:port"
	case has("unknown authority"):
		return "--tls-ca names a file with the certificates to trust"
	case has("WRONGTYPE"), has("OOM "), has("READONLY"), has("MISCONF"):
		return "jobs doctor may say more"
	case ok && timeout.Timeout():
		return fmt.Sprintf("%s has not answered within %s; is it busy, or is TLS on one side only?", s.where(), s.timeout)
	case unreachable(err) && has("EOF"):
		return s.where() + " has closed the connection; if it wants TLS, say --tls or rediss://"
	case unreachable(err) && !said:
		return "neither --redis nor REDIS_URL says where Redis is; this was " + s.where()
	}
	return ""
}

// strange says so where there is no queue at all: somebody looks in the wrong place.
func (t *tool) strange(ctx context.Context) string {
	p := t.server.prefix
	n, err := t.rdb.Exists(ctx, p+"jobs", p+"delayed", p+"jobs:dead").Result()
	switch {
	case n > 0 || err != nil:
		return ""
	case p == "":
		return t.server.where() + " has no queue without a prefix: is it the right Redis, or is there a --prefix?"
	}
	return fmt.Sprintf("%s has no queue with the prefix %q: are both right?", t.server.where(), p)
}

// tagged reports whether all keys behind prefix are in one slot of a cluster.
func tagged(prefix string) bool {
	_, tag, _ := strings.Cut(prefix, "{")
	return strings.IndexByte(tag, '}') > 0
}

func (s server) universal(o *redis.Options) *redis.UniversalOptions {
	u := &redis.UniversalOptions{
		Addrs: []string{o.Addr}, DB: o.DB, Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig,
		ClientName: "jobs-tool", MaxRetries: 1, DialerRetries: 1,
		DialTimeout: s.timeout, ReadTimeout: s.timeout, WriteTimeout: s.timeout,
	}
	if len(s.sentinels) > 0 {
		u.Addrs, u.MasterName, u.SentinelPassword = s.sentinels, s.master, os.Getenv("SENTINEL_PASSWORD")
	}
	if len(s.cluster) > 0 {
		u.Addrs, u.IsClusterMode = s.cluster, true
	}
	if o.Network == "unix" {
		u.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: s.timeout}).DialContext(ctx, "unix", o.Addr)
		}
	}
	return u
}

// secure is the TLS that flags ask for, upon what the URL does.
func (s server) secure(c *tls.Config) (*tls.Config, error) {
	if c == nil && !s.tls && s.ca == "" && s.cert == "" && s.key == "" && s.as == "" {
		return nil, nil
	}
	if c == nil {
		c = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	c.ServerName = cmp.Or(s.as, c.ServerName)
	if s.ca != "" {
		pem, err := os.ReadFile(s.ca)
		if err != nil {
			return nil, usage("--tls-ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usage("--tls-ca: %s holds no certificate", s.ca)
		}
	}
	if (s.cert != "") != (s.key != "") {
		return nil, usage("--tls-cert and --tls-key go together")
	}
	if s.cert != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return nil, usage("--tls-cert and --tls-key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// hidden is why a URL cannot be read, without what stands in it: that may be a password.
func hidden(err error) error {
	if _, ok := errors.AsType[*url.Error](err); ok {
		return errors.New("it cannot be read (in a password, special characters are written as in %2F)")
	}
	return err
}

// trimmed is an error's text without the library's name, which is the tool's too.
func trimmed(err error) string {
	return strings.TrimPrefix(fmt.Sprint(err), "jobs: ")
}

// exitOf is what an error that Redis or the library gave means.
func exitOf(err error) int {
	if errors.Is(err, jobs.ErrUncertain) || store.Refused(err) || unreachable(err) {
		return exitRedis
	}
	return exitPartly
}

func unreachable(err error) bool {
	_, network := errors.AsType[net.Error](err)
	_, alert := errors.AsType[tls.AlertError](err)
	return network || alert || store.Stranger(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, redis.ErrClosed)
}
