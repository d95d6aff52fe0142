// From-asynq moves what lies in asynq's queues to a queue of package jobs, while workers of both run. Copy it, name your
// task types in kinds, and run it beside them until nothing comes any more; docs/from-asynq.md tells the whole way.
//
//	go run . -asynq redis://127.0.0.1:6379 -redis redis://127.0.0.1:6379 -queues default,critical -dry-run
//	go run . -asynq redis://127.0.0.1:6379 -redis redis://127.0.0.1:6379 -queues default,critical -follow 1s
//
// What moves keeps its ID, and its due time where it has one: pending tasks become ready jobs, scheduled ones and those
// that wait for a retry delayed jobs, archived ones dead letters.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stagedoor/jobs"
)

// Tickets are the payload of the tasks of type email:tickets, and the arguments of the jobs of kind send_tickets: the
// application's own struct, with one more tag.
type Tickets struct {
	OrderID int       `json:"order_id" job:"order_id,required"`
	Email   string    `json:"email" job:"email,required"`
	Doors   time.Time `json:"doors" job:"doors"`
}

var sendTickets = jobs.NewKind[Tickets]("send_tickets", jobs.Policy{Retries: 25})

// kinds says what becomes of which type of task. A type that is not here stays where it is.
var kinds = map[string]Convert{
	"email:tickets": Typed(sendTickets),
	"image:resize":  Flat("resize_image"),
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, os.Args[1:]); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "from-asynq:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, args []string) error {
	flags := flag.NewFlagSet("from-asynq", flag.ExitOnError)
	from := flags.String("asynq", "redis://127.0.0.1:6379", "`URL` of asynq's Redis")
	to := flags.String("redis", "redis://127.0.0.1:6379", "`URL` of the Redis of package jobs; it may be the same")
	prefix := flags.String("prefix", "", "jobs.Options.Prefix")
	queues := flags.String("queues", "default", "asynq's queues, with commas between them")
	follow := flags.Duration("follow", 0, "go on, and look again after so long")
	dry := flags.Bool("dry-run", false, "only count what would move")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 { // flags that come after it would not be read, -dry-run among them
		return fmt.Errorf("what is meant by %q? There are only flags, and nothing was done", flags.Args())
	}
	b, err := open(*from, *to, *prefix)
	if err != nil {
		return err
	}
	defer b.close()
	b.dry = *dry
	names := strings.Split(*queues, ",")
	for i, name := range names {
		names[i] = strings.TrimSpace(name)
	}
	for {
		report, err := b.Pass(ctx, names...)
		fmt.Fprintln(out, report)
		if err != nil || *follow == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(*follow):
		}
	}
}

// open is a Bridge on connections of its own.
func open(from, to, prefix string) (*Bridge, error) {
	source, err := redis.ParseURL(from)
	if err != nil {
		return nil, errors.New("the URL of asynq's Redis cannot be read")
	}
	target, err := redis.ParseURL(to)
	if err != nil {
		return nil, errors.New("the URL of the Redis of package jobs cannot be read")
	}
	src, rdb := redis.NewClient(source), redis.NewClient(target)
	b := NewBridge(asynq.NewInspectorFromRedisClient(src), rdb, prefix, kinds)
	b.close = func() { _, _ = src.Close(), rdb.Close() }
	return b, nil
}
