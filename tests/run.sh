#!/usr/bin/env bash
# The whole suite, in two lanes side by side: most of it waits for servers, so that two cores are busy with both.
#   tests/run.sh NEWEST_VENV LOWEST_VENV
# What fails is shown again at the end; the last lines are pytest's own summary. Exits 1 if anything failed.
set -uo pipefail
newest=$1/bin/pytest lowest=$2/bin/pytest
logs=$(mktemp -d)
trap 'kill -- -"$beside" 2>/dev/null; wait; rm -rf "$logs"' EXIT
trap 'exit 130' INT TERM

announce() { printf '\n== %s\n' "$*"; }

beside() {
  local failed=0
  announce "newest libraries: unit, architecture; every branch of core and runtime"
  "$newest" -q tests/unit tests/architecture \
    --cov=inbox.core --cov=inbox.runtime --cov-branch --cov-report=term --cov-fail-under=100 || failed=1
  announce "newest libraries, both pairs of servers: conformance, integration"
  "$newest" -q tests/conformance tests/integration --durations=5 || failed=1
  announce "lowest libraries, oldest pair of servers: unit, conformance, integration"
  "$lowest" -q -p no:cacheprovider tests/unit tests/conformance tests/integration --pair oldest || failed=1
  return $failed
}

set -m; beside >"$logs/beside" 2>&1 & beside=$!; set +m
announce "newest libraries, both pairs of servers: acceptance, concurrency, crash (the rest runs beside it)"
"$newest" -q tests/acceptance tests/concurrency tests/crash --durations=5 2>&1 | tee "$logs/first"
first=${PIPESTATUS[0]}
announce "waiting for what runs beside it"
wait "$beside"; second=$?
cat "$logs/beside"
if [ "$first" != 0 ]; then
  announce "FAILED above, in acceptance, concurrency or crash"
  grep -E '^(FAILED|ERROR) ' "$logs/first"
  tail -n 1 "$logs/first"
fi
[ "$first" = 0 ] && [ "$second" = 0 ]
