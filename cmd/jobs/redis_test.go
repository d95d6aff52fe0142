package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

// A server that takes nobody without a certificate of its own CA, and an ACL user.
func TestTLS(t *testing.T) {
	t.Parallel()
	certs := newCerts(t)
	port := freePort(t)
	server := servers.NewRedis(t, servers.RedisOptions{Args: []string{
		"--tls-port", port, "--tls-cert-file", certs.cert, "--tls-key-file", certs.key, "--tls-ca-cert-file", certs.ca,
		"--tls-auth-clients", "yes", "--user", "ops", "on", ">s3cret", "~t*", "+@all",
	}})
	d := newDesk(t, server.Client(t))
	d.url = "rediss://ignored:s3cret@127.0.0.1:" + port + "/3"
	all := []string{"stats", "--user", "ops", "--tls-ca", certs.ca, "--tls-cert", certs.cert, "--tls-key", certs.key}
	d.do(exitDone, all...)
	for name, args := range map[string][]string{
		"another user":           append([]string{"stats"}, all[3:]...),
		"without a certificate":  all[:5],
		"without the CA":         append(append([]string{}, all[:3]...), all[5:]...),
		"another name":           append(all[:len(all):len(all)], "--tls-name", "elsewhere"),
		"a prefix of no concern": append(all[:len(all):len(all)], "--prefix", "x:"),
	} {
		if s := d.try(args...); s.code != exitRedis {
			t.Errorf("%s: %+v", name, s)
		}
	}
	d.url = "redis://ops:s3cret@127.0.0.1:" + port
	d.do(exitDone, append(all, "--tls")...)
	has(t, d.do(exitDone, append([]string{"enqueue", "k", "--id", "x"}, all[1:]...)...), "x")
	if n, err := d.rdb.XLen(t.Context(), d.prefix+"jobs").Result(); n != 1 || err != nil {
		t.Errorf("%d entries, %v", n, err)
	}
}

// A server with which TLS does not begin is one that is not reachable, and is asked once.
func TestTLSDoesNotBegin(t *testing.T) {
	t.Parallel()
	certs := newCerts(t)
	pair, err := tls.LoadX509KeyPair(certs.cert, certs.key)
	must(t, err)
	for _, c := range []struct {
		name, says string
		serve      func(net.Conn)
	}{
		{"of an unknown CA", "unknown authority", func(c net.Conn) {
			_ = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}}).Handshake() // the client ends it
		}},
		{"without TLS", "does not look like a TLS handshake", func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1024))
			_, _ = io.WriteString(c, "-ERR Protocol error\r\n")
			_, _ = io.Copy(io.Discard, c)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := &desk{t: t, url: "rediss://" + accepting(t, c.serve)}
			for _, args := range []string{
				"stats", "dead show 1-0 2-0", "dead replay 1-0 2-0 -y", "dead discard 1-0 2-0 -y", "dead replay --all -y",
				"delayed show x y", "delayed cancel x y -y", "schedule run-now x y", "enqueue k",
			} {
				s := d.try(strings.Fields(args)...)
				if s.code != exitRedis || s.out != "" || strings.Count(s.err, c.says) != 1 {
					t.Errorf("%s: %+v", args, s)
				}
			}
		})
	}
}

// accepting is the address of a server of connections.
func accepting(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var loops sync.WaitGroup
	t.Cleanup(loops.Wait)
	t.Cleanup(func() { l.Close() })
	loops.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			loops.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	return l.Addr().String()
}

func TestExitOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want int
	}{
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, exitRedis},
		{tls.RecordHeaderError{Msg: "no TLS"}, exitRedis},
		{tls.AlertError(40), exitRedis},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, exitRedis},
		{io.ErrUnexpectedEOF, exitRedis},
		{redis.ErrClosed, exitRedis},
		{jobs.ErrUncertain, exitRedis},
		{jobs.ErrNotFound, exitPartly},
		{errors.New("it cannot be replayed"), exitPartly},
	} {
		if got := exitOf(fmt.Errorf("jobs: %w", c.err)); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	s := servers.NewSentinel(t)
	d := &desk{t: t, prefix: "s:", url: "redis://ignored:1"}
	where := []string{"--sentinel", s.Addr(), "--sentinel-master", servers.MasterName}
	d.do(exitDone, append([]string{"enqueue", "k", "--id", "x"}, where...)...)
	if got := d.objects(append([]string{"stats"}, where...)...); got[0]["ready"] != 1. {
		t.Errorf("got %v", got)
	}
	if got := d.try("stats", "--sentinel", s.Addr(), "--sentinel-master", "another"); got.code != exitRedis {
		t.Errorf("a master that nobody knows: %+v", got)
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	c := servers.SharedCluster(t)
	d := &desk{t: t, prefix: "{" + servers.Prefix(t) + "}:", url: "redis://ignored:1"}
	where := []string{"--cluster", c.Addrs()[0]}
	for _, id := range []string{"one", "two"} {
		d.do(exitDone, append([]string{"enqueue", "k", "--id", id, "--in", "1h"}, where...)...)
	}
	d.do(exitDone, append([]string{"delayed", "run-now", "one"}, where...)...)
	if got := d.objects(append([]string{"stats"}, where...)...); got[0]["ready"] != 1. || got[0]["delayed"] != 1. {
		t.Errorf("got %v", got)
	}
	d.do(exitPartly, append([]string{"doctor"}, where...)...)

	moved := 0
	for _, addr := range c.Addrs() {
		s := d.try("stats", "--redis", "redis://"+addr)
		if s.code == exitRedis {
			moved++
			has(t, s.err, "--cluster host:port")
		}
	}
	if moved == 0 {
		t.Error("no node refers to another")
	}
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	server := servers.NewRedis(t, servers.RedisOptions{Args: []string{"--unixsocket", socket}})
	d := newDesk(t, server.Client(t))
	d.url = "unix://" + socket + "?db=2"
	d.do(exitDone, "enqueue", "k")
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), DB: 2})
	defer rdb.Close()
	if n, err := rdb.XLen(t.Context(), d.prefix+"jobs").Result(); n != 1 || err != nil {
		t.Errorf("%d entries, %v", n, err)
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// certs are files: a CA, and a certificate of it for 127.0.0.1, of server and client.
type certs struct{ ca, cert, key string }

func newCerts(t *testing.T) certs {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o644))
		return path
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "redis"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	must(t, err)
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	must(t, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	must(t, err)
	return certs{write("ca.pem", "CERTIFICATE", caDER), write("cert.pem", "CERTIFICATE", der), write("key.pem", "EC PRIVATE KEY", keyDER)}
}
