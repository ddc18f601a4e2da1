-- inbox, schema version 1, for MySQL 8.0.13 and newer.
--
-- Apply it once, in the database that holds the tables your handlers write: effect and inbox row must share a
-- transaction. Running it again changes nothing. This file is never edited after a release; changes come as further
-- numbered files.
--
-- DEFAULT (UTC_TIMESTAMP(6)) needs MySQL 8.0.13, the first to take an expression as a default (manual, "Data Type
-- Default Values"). The parentheses are required here.
--
-- For all tables:
--   * InnoDB, DYNAMIC and the character set are written out, for the server's defaults may be others. A table without
--     transactions cannot undo a claim.
--   * Octets that came off the wire are binary. A text key merges ids that differ in case, accents or trailing spaces;
--     utf8mb4_bin still pads spaces, and the collations that do not pad have another name on each server.
--   * Text that the framework writes itself is utf8mb4 with utf8mb4_bin.
--   * Times are UTC by the database's clock. CURRENT_TIMESTAMP would follow each session's time zone.

-- One row for each event that a consumer has processed. The primary key is the duplicate check.
--   consumer_name, event_id  exact octets, together 640: far below InnoDB's limit of 3072 for a key. The consumer comes
--                            first, so that its rows lie together; an id that is longer is refused, never cut.
--   fingerprint              SHA-256 of what must not change under one id; NULL where the consumer takes none.
--   fingerprint_scheme       what the fingerprint covers; fingerprints of two schemes are never compared.
--   inbox_by_time            for retention, which deletes for one consumer at a time. InnoDB appends what is missing of
--                            the primary key to each index, so the leading consumer_name costs no space.
CREATE TABLE IF NOT EXISTS `inbox` (
  consumer_name      VARBINARY(128)   NOT NULL,
  event_id           VARBINARY(512)   NOT NULL,
  fingerprint        BINARY(32)       NULL,
  fingerprint_scheme TINYINT UNSIGNED NULL,
  processed_at       DATETIME(6)      NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  PRIMARY KEY (consumer_name, event_id),
  KEY inbox_by_time (consumer_name, processed_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- Counts for events in trouble; an event that goes well the first time never has a row here.
--   failed, crashed          attempts charged to the event: handler errors, and starts that never finished.
--   released                 hand-backs for contention. Not charged, but counted so that they end.
--   open_since, open_token   set while a start has not finished, NULL otherwise. Found by another process they say
--                            that a process died in the handler, or beside it.
--   open_alone               the open start has no other beside it: a death is the event's own.
--   end_token                tells one end that was written twice from two.
--   history                  a line for each charge: time, kind, class and place of the error, never its text.
CREATE TABLE IF NOT EXISTS `inbox_attempt` (
  consumer_name      VARBINARY(128)   NOT NULL,
  attempt_key        VARBINARY(512)   NOT NULL,
  failed             INT UNSIGNED     NOT NULL DEFAULT 0,
  crashed            INT UNSIGNED     NOT NULL DEFAULT 0,
  released           INT UNSIGNED     NOT NULL DEFAULT 0,
  open_since         DATETIME(6)      NULL,
  open_token         VARBINARY(32)    NULL,
  open_alone         TINYINT UNSIGNED NOT NULL DEFAULT 0,
  end_token          VARBINARY(16)    NULL,
  history            VARCHAR(8000)    NULL,
  first_at           DATETIME(6)      NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  last_at            DATETIME(6)      NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  PRIMARY KEY (consumer_name, attempt_key),
  KEY inbox_attempt_by_time (consumer_name, last_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- Refused events, whole, so that each can be looked at, replayed or discarded.
--   digest                   SHA-256 of body, origin and headers without the broker's counters: the same arrival after
--                            a crash finds its own row.
--   event_id                 NULL where there is none, or where it is too long to be stored.
--   event_type, source       for lists and search, may be cut; headers holds the whole.
--   record_key               key of the event's inbox row, NULL for what was never verified. Retention keeps that row
--                            while this one is open.
--   reason, detail           a stable word, and one redacted sentence.
--   origin_*, queue          where it came from, in the broker's octets (an AMQP short string has at most 255).
--   headers, body            typed JSON, and the octets as received; both may be encrypted.
--   body_bytes, total_bytes  sizes; the sum of total_bytes bounds the quarantine.
--   encryption_key_id        which key encrypted headers and body; NULL is plain.
--   attempts, history        as in inbox_attempt, when it was put here.
--   state                    open, replayed or discarded; state_note says why.
--   inbox_quarantine_by_state  serves the list of what is open and the sums that bound the quarantine; neither reads
--                            a body.
CREATE TABLE IF NOT EXISTS `inbox_quarantine` (
  consumer_name      VARBINARY(128)   NOT NULL,
  digest             BINARY(32)       NOT NULL,
  event_id           VARBINARY(512)   NULL,
  event_type         VARBINARY(255)   NULL,
  source             VARBINARY(1024)  NULL,
  record_key         VARBINARY(512)   NULL,
  reason             VARCHAR(64)      NOT NULL,
  detail             VARCHAR(1024)    NULL,
  origin_exchange    VARBINARY(255)   NULL,
  origin_routing_key VARBINARY(255)   NULL,
  queue              VARBINARY(255)   NULL,
  headers            LONGBLOB         NOT NULL,
  body               LONGBLOB         NOT NULL,
  body_bytes         INT UNSIGNED     NOT NULL DEFAULT 0,
  total_bytes        INT UNSIGNED     NOT NULL DEFAULT 0,
  encryption_key_id  VARCHAR(64)      NULL,
  attempts           INT UNSIGNED     NOT NULL DEFAULT 0,
  history            VARCHAR(8000)    NULL,
  times_seen         INT UNSIGNED     NOT NULL DEFAULT 1,
  first_at           DATETIME(6)      NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  last_at            DATETIME(6)      NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  state              VARCHAR(16)      NOT NULL DEFAULT 'open',
  state_at           DATETIME(6)      NULL,
  state_note         VARCHAR(512)     NULL,
  PRIMARY KEY (consumer_name, digest),
  KEY inbox_quarantine_by_state (consumer_name, state, first_at, total_bytes),
  KEY inbox_quarantine_by_event (consumer_name, event_id),
  KEY inbox_quarantine_by_record (consumer_name, record_key, state)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- What each worker process last said of itself; old rows may be deleted at any time.
--   state                    consuming, paused with its reason, or stopped.
--   counts                   what became of deliveries since its start, as a JSON object.
CREATE TABLE IF NOT EXISTS `inbox_worker` (
  consumer_name      VARBINARY(128)   NOT NULL,
  worker_id          BINARY(16)       NOT NULL,
  host               VARCHAR(255)     NOT NULL,
  pid                INT UNSIGNED     NOT NULL,
  state              VARCHAR(255)     NOT NULL,
  counts             VARCHAR(4000)    NOT NULL,
  started_at         DATETIME(6)      NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  seen_at            DATETIME(6)      NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  PRIMARY KEY (consumer_name, worker_id),
  KEY inbox_worker_by_time (consumer_name, seen_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- Which of these files were applied.
CREATE TABLE IF NOT EXISTS `inbox_schema` (
  version            INT UNSIGNED     NOT NULL,
  applied_at         DATETIME(6)      NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  PRIMARY KEY (version)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

INSERT INTO `inbox_schema` (version) VALUES (1) ON DUPLICATE KEY UPDATE version = 1;

-- For people: the raw key columns beside their text. A condition on the raw columns uses the primary key, one on the
-- text scans. A view and no generated column: ids may be any octets, and the row stays narrow. Text that is not valid
-- UTF-8 shows as NULL.
-- It runs with the reader's own rights.
CREATE OR REPLACE ALGORITHM = MERGE SQL SECURITY INVOKER VIEW `inbox_view` AS
SELECT consumer_name,
       event_id,
       CONVERT(consumer_name USING utf8mb4) AS consumer_text,
       CONVERT(event_id USING utf8mb4) AS event_text,
       HEX(fingerprint) AS fingerprint_hex,
       fingerprint_scheme,
       processed_at
  FROM `inbox`;
