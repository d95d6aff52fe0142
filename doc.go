// Package jobs runs background jobs on Redis Streams inside an application's own worker
// binary: at a time, after a delay, on a schedule, again after a failure, and, where they
// must never run again, into a stream of dead letters that a human reads in the morning.
//
// A kind has a name, a policy and a typed handler. A Client enqueues jobs, a Runner runs
// them; every worker runs everything there is to run: the consumer loop, the leases, the
// sweep for what crashed workers left behind, the delayed jobs and the schedules.
//
// # What is promised
//
// A job has one outcome: done, retried or dead-lettered, each one atomic script on Redis.
// A crash costs seconds: what a killed worker ran is running elsewhere within 15 s, and no
// retry is spent on it. A job that kills its process three times is dead-lettered, and
// what ran beside it is not. One tick of a schedule is one job, whatever the number of
// workers. Nothing grows. Delivery is at least once: handlers are idempotent, and a job's
// kind and ID, which stay the same across retries, crashes and replays, are the key to
// deduplicate by.
package jobs
