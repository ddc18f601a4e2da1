#!/usr/bin/env bash
# The whole suite, in two lanes side by side, and a short soak: most of it waits for servers, so that two cores are busy.
#   tests/run.sh NEWEST_VENV LOWEST_VENV [SEED]
# Each test runs on one of its pairs of servers and over one of its drivers, drawn by SEED; with SEED=all on every one.
# What failed in the first lane is named again at the end, where pytest's own summary of the second one stands last.
# Exits 1 if anything failed.
set -uo pipefail
unset PYTHONDONTWRITEBYTECODE  # hundreds of workers are started: compiling the package anew for each is a third of a start
newest=$1/bin/pytest lowest=$2/bin/pytest seed=${3:-$RANDOM}
rotation=(--rotate "$seed"); [ "$seed" != all ] || rotation=()
logs=$(mktemp -d)
trap 'kill -- -"$beside" -"$soaking" 2>/dev/null; wait; rm -rf "$logs"' EXIT
trap 'exit 130' INT TERM

announce() { printf '\n== %s\n' "$*"; }

first_lane() {
  local failed=0
  announce "newest libraries, a pair of servers for each test: acceptance, crash; seed $seed"
  "$newest" -q tests/acceptance tests/crash "${rotation[@]}" --durations=5 || failed=1
  announce "lowest libraries, oldest pair of servers: unit, conformance, integration"
  "$lowest" -q -p no:cacheprovider tests/unit tests/conformance tests/integration --pair oldest "${rotation[@]}" || failed=1
  return $failed
}

second_lane() {
  local failed=0
  announce "newest libraries: unit, architecture; every branch of core and runtime"
  "$newest" -q tests/unit tests/architecture \
    --cov=inbox.core --cov=inbox.runtime --cov-branch --cov-report=term --cov-fail-under=100 || failed=1
  announce "newest libraries, a pair of servers for each test: concurrency, conformance, integration; seed $seed"
  "$newest" -q tests/concurrency tests/conformance tests/integration "${rotation[@]}" --durations=5 || failed=1
  return $failed
}

# On servers of its own, which it kills and restarts; it mostly waits, and neither lane waits for it for long.
soak_lane() {
  local drawn=(--seed "$seed"); [ "$seed" != all ] || drawn=()
  announce "newest libraries: two minutes of load with kills, cuts and outages, and an audit"
  env -u INBOX_MYSQL_DSN -u INBOX_RABBIT4_DSN "${newest%/*}/python" -m tests.soak --minutes 2 --rate 20 "${drawn[@]}"
}

announce "seed $seed: repeat this run by make test SEED=$seed; every combination by make test SEED=all"
set -m
second_lane >"$logs/second" 2>&1 & beside=$!
soak_lane >"$logs/soak" 2>&1 & soaking=$!
set +m
echo "unit, architecture, concurrency, conformance and integration run beside this; what they say follows at the end"
first_lane 2>&1 | tee "$logs/first"
first=${PIPESTATUS[0]}
wait "$soaking"; soak=$?
if [ "$soak" = 0 ]; then tail -n 6 "$logs/soak"; else cat "$logs/soak"; fi
announce "waiting for the second lane"
wait "$beside"; second=$?
cat "$logs/second"
if [ "$first" != 0 ] || [ "$second" != 0 ] || [ "$soak" != 0 ]; then announce "FAILED with seed $seed"; fi
[ "$soak" = 0 ] || announce "FAILED: the soak, above"
if [ "$first" != 0 ]; then
  announce "FAILED in the first lane, above"
  grep -E '^(FAILED|ERROR) |(failed|error).* in [0-9.]+s' "$logs/first"
fi
[ "$first" = 0 ] && [ "$second" = 0 ] && [ "$soak" = 0 ]
