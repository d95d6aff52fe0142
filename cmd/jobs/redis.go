package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"
	"github.com/stagedoor/jobs"
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

// actor is user@host, as far as these are known.
func actor() string {
	host, _ := os.Hostname()
	if u, err := user.Current(); err == nil {
		return u.Username + "@" + host
	}
	return cmp.Or(os.Getenv("USER"), "?") + "@" + host
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
	o, err := redis.ParseURL(cmp.Or(s.url, os.Getenv("REDIS_URL"), "redis://localhost:6379"))
	if err != nil {
		return nil, usage("the URL of Redis: %s", hidden(err))
	}
	o.Username = cmp.Or(s.user, o.Username)
	o.Password = cmp.Or(o.Password, os.Getenv("REDIS_PASSWORD"))
	if o.TLSConfig, err = s.secure(o.TLSConfig); err != nil {
		return nil, err
	}
	switch {
	case len(s.sentinels) > 0 && len(s.cluster) > 0:
		return nil, usage("--sentinel and --cluster exclude each other")
	case (len(s.sentinels) > 0) != (s.master != ""):
		return nil, usage("--sentinel and --sentinel-master go together")
	case len(s.cluster) > 0 && !tagged(s.prefix):
		return nil, usage("on a cluster --prefix carries a hash tag, as in {stagedoor}:")
	}
	return redis.NewUniversalClient(s.universal(o)), nil
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
	if s.cert != "" || s.key != "" {
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
