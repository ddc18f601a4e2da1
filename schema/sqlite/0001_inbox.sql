-- inbox, schema version 1, for SQLite 3.35 and newer.
--
-- The store applies it by itself. By hand, with the second file beside your own:
--
--   sqlite3 app.db "ATTACH 'app.db-inbox' AS beside" ".read 0001_inbox.sql"
--
-- Running it again changes nothing. This file is never edited after a release; changes come as further numbered files.
--
-- Two files, for SQLite has one writer for each: the claim is part of the transaction that your handler writes in, and
-- what is noted while that is open (a start of the handler, a refused event, a report) must not wait for its end.
--
-- For all tables:
--   * Octets that came off the wire are BLOB, and are bound as octets: to SQLite a text never equals a blob.
--   * Times are UTC as text, to the microsecond, such as 2026-01-31 12:00:00.000001: people read them, they sort as
--     times do, and SQLite's date functions take them. The clock is the machine's; SQLite has no other.
--   * WITHOUT ROWID where the key is all that a row is found by: one tree instead of two.

-- One row for each event that a consumer has processed. The primary key is the duplicate check.
--   consumer_name, event_id  exact octets, at most 128 and 512; an id that is longer is refused, never cut.
--   fingerprint              SHA-256 of what must not change under one id; NULL where the consumer takes none.
--   fingerprint_scheme       what the fingerprint covers; fingerprints of two schemes are never compared.
--   inbox_by_time            for retention, which deletes for one consumer at a time.
CREATE TABLE IF NOT EXISTS main.`inbox` (
  consumer_name      BLOB    NOT NULL,
  event_id           BLOB    NOT NULL,
  fingerprint        BLOB    NULL,
  fingerprint_scheme INTEGER NULL,
  processed_at       TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'),
  PRIMARY KEY (consumer_name, event_id)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS main.`inbox_by_time` ON `inbox` (consumer_name, processed_at);

-- Counts for events in trouble; an event that goes well the first time never has a row here.
--   failed, crashed          attempts charged to the event: handler errors, and starts that never finished.
--   released                 hand-backs for contention. Not charged, but counted so that they end.
--   open_since, open_token   set while a start has not finished, NULL otherwise. Found by another process they say
--                            that a process died in the handler, or beside it.
--   open_alone               the open start has no other beside it: a death is the event's own.
--   history                  a line for each charge: time, kind, class and place of the error, never its text.
CREATE TABLE IF NOT EXISTS beside.`inbox_attempt` (
  consumer_name      BLOB    NOT NULL,
  attempt_key        BLOB    NOT NULL,
  failed             INTEGER NOT NULL DEFAULT 0,
  crashed            INTEGER NOT NULL DEFAULT 0,
  released           INTEGER NOT NULL DEFAULT 0,
  open_since         TEXT    NULL,
  open_token         BLOB    NULL,
  open_alone         INTEGER NOT NULL DEFAULT 0,
  history            TEXT    NULL,
  first_at           TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'),
  last_at            TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'),
  PRIMARY KEY (consumer_name, attempt_key)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS beside.`inbox_attempt_by_time` ON `inbox_attempt` (consumer_name, last_at);

-- Refused events, whole, so that each can be looked at, replayed or discarded.
--   digest                   SHA-256 of body, origin and headers without the broker's counters: the same arrival after
--                            a crash finds its own row.
--   event_id                 NULL where there is none, or where it is too long to be stored.
--   event_type, source       for lists and search, may be cut; headers holds the whole.
--   record_key               key of the event's inbox row, NULL for what was never verified. Retention keeps that row
--                            while this one is open.
--   reason, detail           a stable word, and one redacted sentence.
--   origin_*, queue          where it came from.
--   headers, body            typed JSON, and the octets as received.
--   body_bytes, total_bytes  sizes; the sum of total_bytes bounds the quarantine.
--   attempts, history        as in inbox_attempt, when it was put here.
--   state                    open, replayed or discarded; state_note says why.
CREATE TABLE IF NOT EXISTS beside.`inbox_quarantine` (
  consumer_name      BLOB    NOT NULL,
  digest             BLOB    NOT NULL,
  event_id           BLOB    NULL,
  event_type         BLOB    NULL,
  source             BLOB    NULL,
  record_key         BLOB    NULL,
  reason             TEXT    NOT NULL,
  detail             TEXT    NULL,
  origin_exchange    BLOB    NULL,
  origin_routing_key BLOB    NULL,
  queue              BLOB    NULL,
  headers            BLOB    NOT NULL,
  body               BLOB    NOT NULL,
  body_bytes         INTEGER NOT NULL DEFAULT 0,
  total_bytes        INTEGER NOT NULL DEFAULT 0,
  attempts           INTEGER NOT NULL DEFAULT 0,
  history            TEXT    NULL,
  times_seen         INTEGER NOT NULL DEFAULT 1,
  first_at           TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'),
  last_at            TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'),
  state              TEXT    NOT NULL DEFAULT 'open',
  state_at           TEXT    NULL,
  state_note         TEXT    NULL,
  PRIMARY KEY (consumer_name, digest)
);

CREATE INDEX IF NOT EXISTS beside.`inbox_quarantine_by_state`
  ON `inbox_quarantine` (consumer_name, state, first_at, total_bytes, digest);

CREATE INDEX IF NOT EXISTS beside.`inbox_quarantine_by_event` ON `inbox_quarantine` (consumer_name, event_id);

CREATE INDEX IF NOT EXISTS beside.`inbox_quarantine_by_record` ON `inbox_quarantine` (consumer_name, record_key, state);

-- What each worker process last said of itself; old rows may be deleted at any time.
--   state                    consuming, paused with its reason, or stopped.
--   counts                   what became of deliveries since its start, as a JSON object.
CREATE TABLE IF NOT EXISTS beside.`inbox_worker` (
  consumer_name      BLOB    NOT NULL,
  worker_id          BLOB    NOT NULL,
  host               TEXT    NOT NULL,
  pid                INTEGER NOT NULL,
  state              TEXT    NOT NULL,
  counts             TEXT    NOT NULL,
  started_at         TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'),
  seen_at            TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'),
  PRIMARY KEY (consumer_name, worker_id)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS beside.`inbox_worker_by_time` ON `inbox_worker` (consumer_name, seen_at);

-- Which of these files were applied.
CREATE TABLE IF NOT EXISTS main.`inbox_schema` (
  version            INTEGER NOT NULL PRIMARY KEY,
  applied_at         TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now') || '000')
);

INSERT INTO main.`inbox_schema` (version) VALUES (1) ON CONFLICT (version) DO NOTHING;

-- For people: the raw key columns beside their text. A condition on the raw columns uses the primary key, one on the
-- text scans.
CREATE VIEW IF NOT EXISTS main.`inbox_view` AS
SELECT consumer_name,
       event_id,
       CAST(consumer_name AS TEXT) AS consumer_text,
       CAST(event_id AS TEXT) AS event_text,
       HEX(fingerprint) AS fingerprint_hex,
       fingerprint_scheme,
       processed_at
  FROM `inbox`;
