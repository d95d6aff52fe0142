package jobs_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
	"github.com/stagedoor/jobs/internal/servers"
)

// certificate writes a self-signed certificate and its key into a folder, and returns their
// paths and a pool that trusts it.
func certificate(t testing.TB) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	public, err := x509.CreateCertificate(rand.Reader, &template, &template, &private.PublicKey, private)
	must(t, err)
	bytes, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: public})
	must(t, os.WriteFile(cert, text, 0o600))
	must(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: bytes}), 0o600))
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return cert, key, pool
}

// port is one that nobody listens on.
func port(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// connections are those that other clients than admin have made, each as CLIENT LIST says it.
func connections(t testing.TB, admin *redis.Client) []string {
	t.Helper()
	list, err := admin.ClientList(t.Context()).Result()
	must(t, err)
	var all []string
	for line := range strings.Lines(list) {
		if !strings.Contains(line, " name=admin ") {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}

func TestE03_ConnectionsCarryTheUsersOptions(t *testing.T) {
	t.Parallel()
	cert, key, pool := certificate(t)
	secure := port(t)
	server := servers.NewRedis(t, servers.RedisOptions{Args: []string{
		"--tls-port", secure, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--tls-auth-clients", "no",
	}})
	// The plain port is the test's own.
	admin := redis.NewClient(&redis.Options{Addr: server.Addr(), ClientName: "admin", DisableIdentity: true})
	t.Cleanup(func() { _ = admin.Close() })
	must(t, admin.Do(t.Context(), "acl", "setuser", "app", "on", ">s3cret", "~*", "+@all", "-@admin").Err())
	must(t, admin.ConfigResetStat(t.Context()).Err())
	rdb := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:" + secure, Username: "app", Password: "s3cret", DB: 3, TLSConfig: &tls.Config{RootCAs: pool},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	q := newQueue(t, rdb, "")
	var rs runs
	q.start(jobs.Config{}, handle(once, record[jobs.Fields](&rs)), func(r *jobs.Runner) {
		r.Schedule(jobs.Periodic{Name: "each second", When: jobs.Every(time.Second), Job: once.Job(jobs.Fields{"n": "tick"})})
	})
	q.enqueue(once.Job(nil), once.Job(nil).In(time.Second))
	eventually(t, "one at once, one delayed, and a tick", func() bool {
		ticks := 0
		for _, job := range rs.all() {
			if !job.Tick.IsZero() {
				ticks++
			}
		}
		return ticks >= 1 && len(rs.all())-ticks == 2
	})
	made := made(t, admin) // before they are listed: more may come meanwhile
	all := connections(t, admin)
	for _, line := range all {
		if strings.Contains(line, " cmd=NULL ") {
			continue // it has not said who it is yet
		}
		for _, want := range []string{" db=3 ", " user=app ", " laddr=127.0.0.1:" + secure + " "} {
			if !strings.Contains(line, want) {
				t.Errorf("no %q in: %s", want, line)
			}
		}
	}
	if len(all) == 0 {
		t.Error("no connections")
	}
	if len(all) == 0 || made > len(all) {
		t.Errorf("%d connections were made, of which these are open: %q", made, all)
	}
}

// made is how many connections the server has seen since the last CONFIG RESETSTAT.
func made(t testing.TB, admin *redis.Client) (n int) {
	t.Helper()
	info, err := admin.Info(t.Context(), "stats").Result()
	must(t, err)
	_, rest, _ := strings.Cut(info, "total_connections_received:")
	_, err = fmt.Sscan(rest, &n)
	must(t, err)
	return n
}

func TestRunNamesAWrongPassword(t *testing.T) {
	t.Parallel()
	server := servers.NewRedis(t, servers.RedisOptions{Args: []string{"--requirepass", "right"}})
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: "wrong"})
	t.Cleanup(func() { _ = rdb.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := jobs.NewRunner(jobs.NewClient(rdb, jobs.Options{}), jobs.Config{}).Run(ctx)
	if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("Run: %v", err)
	}
}
