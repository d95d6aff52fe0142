-- The outbox of github.com/stagedoor/jobs/outbox. It may run again on a database that has it, and at the same time as
-- others, if it is one transaction. No comment may name the schema, whose name may have lines.

SELECT pg_advisory_xact_lock(1886547833, 0);
SELECT FROM pg_catalog.pg_namespace LIMIT 0; -- or the session may still remember that there was no such schema

CREATE SCHEMA IF NOT EXISTS {schema};

-- A row is a job that a transaction has decided on. The relay reads them in the order of seq.
CREATE TABLE IF NOT EXISTS {schema}.outbox (
    seq          bigint GENERATED ALWAYS AS IDENTITY,
    outbox_id    uuid NOT NULL DEFAULT gen_random_uuid(), -- the job's ID
    kind         text NOT NULL,
    fields       json NOT NULL DEFAULT '{}',              -- the job's arguments, see the README
    request_id   text,
    trace        text,
    scheduled_at timestamptz,
    due          timestamptz,                             -- NULL: at once
    created_at   timestamptz NOT NULL DEFAULT now(),
    published_at timestamptz,                             -- NULL: not yet
    CONSTRAINT outbox_job PRIMARY KEY (outbox_id, kind),
    CONSTRAINT outbox_fields CHECK (json_typeof(fields) = 'object' AND octet_length(fields::text) <= 67108864),
    CONSTRAINT outbox_times CHECK (due < '10000-01-01 00:00+00' AND due > '-infinity'
        AND scheduled_at < '10000-01-01 00:00+00' AND scheduled_at > '-infinity')
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

CREATE INDEX IF NOT EXISTS outbox_unpublished ON {schema}.outbox (seq) WHERE published_at IS NULL;

-- A row is a job whose effect is in this database.
CREATE TABLE IF NOT EXISTS {schema}.once (
    kind    text NOT NULL,
    job_id  text NOT NULL,
    done_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (kind, job_id)
);

CREATE INDEX IF NOT EXISTS once_done_at ON {schema}.once (done_at);

-- Rows wake the relay when their transaction commits, whoever wrote them.
CREATE OR REPLACE FUNCTION {schema}.outbox_wake() RETURNS trigger LANGUAGE plpgsql AS $wake$
BEGIN
    PERFORM pg_catalog.pg_notify('jobs_outbox', TG_TABLE_SCHEMA);
    RETURN NULL;
END
$wake$;

CREATE OR REPLACE TRIGGER outbox_wake AFTER INSERT ON {schema}.outbox
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.outbox_wake();

COMMENT ON TABLE {schema}.outbox IS 'github.com/stagedoor/jobs/outbox 1';
