// By hand in Node, on amqplib and mysql2: the same three packets and one acknowledgement as `raw.py`, the same contract
// as `contract.py`.
'use strict';

const amqp = require('amqplib');
const mysql = require('mysql2/promise');
const { readFileSync } = require('node:fs');
const { parseArgs } = require('node:util');

const INSERT = 'INSERT INTO inbox (consumer_name, event_id) VALUES (?, ?)';
const UPDATE = 'UPDATE bench_account SET balance = balance + ? WHERE id = ?';
const CONSUMER = Buffer.from('bench');
const DUPLICATE = 1062;

const { values: words } = parseArgs({
  options: {
    'queue': { type: 'string' },
    'in-flight': { type: 'string' },
    'prefetch': { type: 'string' },
    'expect': { type: 'string' },
    'tells-each': { type: 'boolean', default: false },
  },
});
const inFlight = Number(words['in-flight']);
const prefetch = Number(words['prefetch'] ?? inFlight);
const expect = Number(words['expect']);

const say = (line) => process.stdout.write(line + '\n');
const nextLine = () => new Promise((resolve) => process.stdin.once('data', resolve));
const cpuSeconds = () => {
  const used = process.cpuUsage();
  return (used.user + used.system) / 1e6;
};

// Not `maxRSS`, which a process takes over from the one that started it.
const peakRssMb = () => Number(/VmHWM:\s+(\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))[1]) / 1024;

async function fill(pool) {
  const connections = await Promise.all(Array.from({ length: inFlight }, () => pool.getConnection()));
  for (const connection of connections) {
    await connection.query('SET autocommit = 0');
    connection.release();
  }
}

async function apply(pool, id, order) {
  const connection = await pool.getConnection();
  try {
    await connection.query(INSERT, [CONSUMER, Buffer.from(id)]);
    await connection.query(UPDATE, [order.amount, order.account]);
    await connection.commit();
  } catch (error) {
    if (error.errno !== DUPLICATE) throw error;
    await connection.rollback();
  } finally {
    connection.release();
  }
}

function report(latencies, seconds, cpu) {
  const ordered = latencies.sort((a, b) => a - b);
  say(JSON.stringify({
    seconds,
    deliveries: ordered.length,
    p50_ms: ordered[Math.floor(ordered.length / 2)],
    p99_ms: ordered[Math.floor((ordered.length * 99) / 100)],
    cpu_seconds: cpu,
    peak_rss_mb: peakRssMb(),
  }));
}

async function main() {
  const pool = mysql.createPool({ uri: process.env.BENCH_DATABASE_URL, connectionLimit: inFlight });
  await fill(pool);
  const broker = await amqp.connect(process.env.BENCH_AMQP_URL);
  const channel = await broker.createChannel();
  await channel.prefetch(prefetch);
  const go = nextLine();
  say('ready');
  await go;
  const latencies = [];
  let begin, cpu;
  await new Promise((resolve, reject) => {
    const take = async (message) => {
      const arrived = performance.now();
      if (begin === undefined) [begin, cpu] = [arrived, cpuSeconds()];
      await apply(pool, message.properties.headers['ce-id'], JSON.parse(message.content));
      channel.ack(message);
      const now = performance.now();
      latencies.push(now - arrived);
      if (words['tells-each']) say('acknowledged');
      if (latencies.length === expect) {
        const seen = nextLine();
        report(latencies, (now - begin) / 1000, cpuSeconds() - cpu);
        seen.then(resolve);
      }
    };
    channel.consume(words['queue'], (message) => { take(message).catch(reject); }).catch(reject);
  });
  process.stdin.destroy();
  await channel.close();
  await broker.close();
  await pool.end();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
