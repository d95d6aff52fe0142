package store

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"
)

// Dead yields page after page of the dead letters between two stream IDs (both
// included, "-" and "+" for the ends), oldest first, until there is no more or see
// returns false.
func (s *Store) Dead(ctx context.Context, from, to string, see func([]Entry) bool) error {
	const size = 100
	for {
		page, err := s.rdb.XRangeN(ctx, s.keys.Dead, from, to, size).Result()
		if err != nil || len(page) == 0 {
			return err
		}
		letters := make([]Entry, len(page))
		for i, message := range page {
			letters[i] = entry(message)
		}
		if !see(letters) || len(page) < size {
			return nil
		}
		from = after(page[len(page)-1].ID)
	}
}

// NewestDead is the stream ID of the youngest dead letter, "" where there is none.
func (s *Store) NewestDead(ctx context.Context) (string, error) {
	page, err := s.rdb.XRevRangeN(ctx, s.keys.Dead, "+", "-", 1).Result()
	if err != nil || len(page) == 0 {
		return "", err
	}
	return page[0].ID, nil
}

// DeadLetter reads one dead letter; ok is false where there is none under id.
func (s *Store) DeadLetter(ctx context.Context, id string) (e Entry, ok bool, err error) {
	page, err := s.rdb.XRangeN(ctx, s.keys.Dead, id, id, 1).Result()
	if err != nil || len(page) == 0 {
		return Entry{}, false, err
	}
	return entry(page[0]), true, nil
}

// DeadBefore is Dead from the newest on, in pages of so many.
func (s *Store) DeadBefore(ctx context.Context, from, to string, size int, see func([]Entry) bool) error {
	return s.backwards(ctx, s.keys.Dead, from, to, size, see)
}

// backwards yields a stream's pages from its end on.
func (s *Store) backwards(ctx context.Context, key, from, to string, size int, see func([]Entry) bool) error {
	for {
		page, err := s.rdb.XRevRangeN(ctx, key, to, from, int64(size)).Result()
		if err != nil || len(page) == 0 {
			return err
		}
		list := make([]Entry, len(page))
		for i, message := range page {
			list[i] = entry(message)
		}
		if !see(list) || len(page) < size {
			return nil
		}
		to = Before(page[len(page)-1].ID)
	}
}

// Before is the greatest stream ID below id.
func Before(id string) string {
	ms, seq := split(id)
	switch {
	case seq > 0:
		return strconv.FormatUint(ms, 10) + "-" + strconv.FormatUint(seq-1, 10)
	case ms > 0:
		return strconv.FormatUint(ms-1, 10) + "-" + strconv.FormatUint(math.MaxUint64, 10)
	}
	return "0-0"
}

// LastOf is the greatest stream ID of t.
func LastOf(t time.Time) string {
	return strconv.FormatInt(max(0, t.UnixMilli()), 10) + "-" + strconv.FormatUint(math.MaxUint64, 10)
}

// Older says that the first of two stream IDs is the lesser.
func Older(a, b string) bool {
	ms, seq := split(a)
	otherMs, otherSeq := split(b)
	return ms < otherMs || ms == otherMs && seq < otherSeq
}

func split(id string) (ms, seq uint64) {
	left, right, _ := strings.Cut(id, "-")
	ms, _ = strconv.ParseUint(left, 10, 64)
	seq, _ = strconv.ParseUint(right, 10, 64)
	return ms, seq
}
