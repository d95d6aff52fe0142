package fields_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stagedoor/jobs/internal/fields"
)

type ticket struct {
	OrderID int64 `job:"order_id,required"`
	Seat    string
	Price   Cents
	At      time.Time
	Retry   time.Duration
	Barcode []byte
	Note    *string
}

var (
	aTicket = ticket{4471, "14C", 4500, time.Date(2025, 9, 18, 21, 14, 1, 0, time.UTC), time.Minute, []byte("STG-4471-14C"), nil}
	aJob    = map[string]string{
		"kind": "render_tickets", "order_id": "4471", "outbox_id": "88210", "attempts": "1",
		"request_id": "7f3a9c2e-5b7d-4b0e-9d0a-3c1f2e4d5a6b", "trace": "4bf92f3577b34da6a3ce929d0e0e4736",
		"last_error": `SeatLabelInvalid: "14-C" is not a row letter and a seat number`,
	}
)

func BenchmarkEncode(b *testing.B) {
	c := newCodec(b, aTicket)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Encode(&aTicket); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	c := newCodec(b, aTicket)
	m, err := c.Encode(aTicket)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		var got ticket
		if err := c.Decode(m, &got); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMember(b *testing.B) {
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			fields.Member(aJob)
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := json.Marshal(aJob); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkParseMember(b *testing.B) {
	member := fields.Member(aJob)
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := fields.ParseMember(member); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var m map[string]string
			if err := json.Unmarshal([]byte(member), &m); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkFlatten(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		fields.Flatten(aJob)
	}
}
