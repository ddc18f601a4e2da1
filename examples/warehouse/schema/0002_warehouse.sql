-- The application's own tables, in the database that holds the inbox: stock, reservation and inbox row share a
-- transaction. InnoDB, for a table without transactions could undo none of it.
CREATE TABLE IF NOT EXISTS stock (
  item  VARCHAR(64) NOT NULL PRIMARY KEY,
  free  INT         NOT NULL
) ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS reservation (
  id       BIGINT      NOT NULL AUTO_INCREMENT PRIMARY KEY,
  order_id VARCHAR(64) NOT NULL,
  item     VARCHAR(64) NOT NULL,
  quantity INT         NOT NULL
) ENGINE=InnoDB;
