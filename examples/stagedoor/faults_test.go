package main

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestFakesAreToldToFail(t *testing.T) {
	t.Parallel()
	m, stopMailer, err := startMailer()
	if err != nil {
		t.Fatal(err)
	}
	defer stopMailer()
	p, stopPayrail, err := startPayrail(1)
	if err != nil {
		t.Fatal(err)
	}
	defer stopPayrail()
	for name, ask := range map[string]struct {
		url string
		do  func(url string) (*http.Response, error)
	}{
		"mail": {m.url, func(url string) (*http.Response, error) {
			req, _ := http.NewRequest(http.MethodPost, url+"/messages", strings.NewReader(`{"to":"ada@example.org"}`))
			req.Header.Set("Idempotency-Key", "k")
			return http.DefaultClient.Do(req)
		}},
		"payrail": {p.url, func(url string) (*http.Response, error) { return http.Get(url + "/payments?day=2026-03-28") }},
	} {
		status := func(resp *http.Response, err error) int {
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			return resp.StatusCode
		}
		if got := status(http.PostForm(ask.url+"/fail", url.Values{"next": {"two"}})); got != 400 {
			t.Errorf("%s: fail=two: %d", name, got)
		}
		if got := status(http.PostForm(ask.url+"/fail", url.Values{"next": {"2"}})); got != 200 {
			t.Errorf("%s: fail=2: %d", name, got)
		}
		for i, want := range []bool{true, true, false} {
			if got := status(ask.do(ask.url)); (got == 503) != want {
				t.Errorf("%s: request %d was answered %d, want a failure: %t", name, i, got, want)
			}
		}
	}
}
