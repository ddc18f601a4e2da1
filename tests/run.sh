#!/usr/bin/env bash
# The whole suite, in three lanes side by side: most of it waits for servers, so that two cores are busy with them. (With
# four, every part takes nearly twice as long.)
#   tests/run.sh NEWEST_VENV LOWEST_VENV [SEED]
# Each test runs on one of its pairs of servers and over one of its drivers, drawn by SEED; with SEED=all on every one.
# A lane that is free takes the next part, the longest first. So all end at about the same time.
# Pytest's own summary of a lane stands last; what failed in any lane is named once more behind it.
# Exits 1 if anything failed.
set -uo pipefail
unset PYTHONDONTWRITEBYTECODE  # hundreds of workers are started: compiling the package anew for each is a third of a start
newest=$1/bin/pytest lowest=$2/bin/pytest seed=${3:-$RANDOM}
rotation=(--rotate "$seed") third=--one-in=3; [ "$seed" != all ] || { rotation=() third=; }
logs=$(mktemp -d) lanes=()
trap 'kill -- "${lanes[@]/#/-}" 2>/dev/null; wait; rm -rf "$logs"' EXIT
trap 'exit 130' INT TERM

announce() { printf '\n== %s\n' "$*"; }

# The parts on servers, the longest first, and those without.
parts=(on_servers acceptance crash lowest_on_servers unit lowest_unit model)

on_servers() {
  announce "newest libraries, a pair of servers for each test: conformance, integration; seed $seed"
  "$newest" -q tests/conformance tests/integration "${rotation[@]}" --durations=5
}

acceptance() {
  announce "newest libraries, a pair of servers for each test: acceptance; seed $seed"
  "$newest" -q tests/acceptance "${rotation[@]}" --durations=5
}

crash() {
  announce "newest libraries, a pair of servers for each test: crash, concurrency; seed $seed"
  "$newest" -q tests/crash tests/concurrency "${rotation[@]}" --durations=5
}

unit() {
  announce "newest libraries: unit, architecture, less the model; every branch of core and runtime"
  "$newest" -q tests/unit tests/architecture --ignore="$worlds" \
    --cov=inbox.core --cov=inbox.runtime --cov-branch --cov-report=term --cov-fail-under=100
}

# By itself, for it takes three times as long where branches are counted, and covers none that no other test does.
worlds=tests/unit/test_model.py
model() {
  announce "newest libraries: the model, every world of it"
  "$newest" -q "$worlds" --durations=3
}

# What works at the newest versions seldom fails at the lowest: all of conformance, and a third of integration by the seed.
lowest_on_servers() {
  announce "lowest libraries, oldest pair of servers: conformance, integration${third:+ (a third)}; seed $seed"
  "$lowest" -q -p no:cacheprovider tests/conformance tests/integration --pair oldest "${rotation[@]}" $third
}

lowest_unit() {
  announce "lowest libraries: unit, less what no library can change"
  "$lowest" -q -p no:cacheprovider tests/unit --without-pure
}

# Beside all lanes, for it mostly waits: on servers of its own, which it kills and restarts.
soak() {
  local drawn=(--seed "$seed"); [ "$seed" != all ] || drawn=()
  announce "newest libraries, newest pair of servers: two minutes of load with kills, cuts and outages, and an audit"
  env -u INBOX_MYSQL_DSN -u INBOX_RABBIT4_DSN "${newest%/*}/python" -m tests.soak --minutes 2 --rate 20 "${drawn[@]}"
}

# Takes the parts in the order given. A part is taken by whoever makes its folder: one does.
lane() {
  local failed=0 part
  for part in "$@"; do
    if mkdir "$logs/$part" 2>/dev/null; then
      "$part" && touch "$logs/$part/passed" || failed=1
    fi
  done
  return $failed
}

announce "seed $seed: repeat this run by make test SEED=$seed; every combination by make test SEED=all"
set -m
lane "${parts[@]}" >"$logs/second" 2>&1 & lanes+=($!)
lane "${parts[@]}" >"$logs/third" 2>&1 & lanes+=($!)
soak >"$logs/soak" 2>&1 & lanes+=($!)
set +m
echo "three lanes share the parts: ${parts[*]}; what the other two say follows at the end"
lane "${parts[@]}" 2>&1 | tee "$logs/first"
ended=("${PIPESTATUS[0]}")
wait "${lanes[2]}"; soaked=$?
if [ "$soaked" = 0 ]; then tail -n 6 "$logs/soak"; else cat "$logs/soak"; fi
announce "waiting for the other lanes"
for number in 0 1; do
  wait "${lanes[number]}"; ended+=($?)
done
cat "$logs/second" "$logs/third"
failed=()
for part in "${parts[@]}"; do
  [ -e "$logs/$part/passed" ] || failed+=("$part")
done
[ "$soaked" = 0 ] || failed+=(soak)
if [ ${#failed[@]} != 0 ]; then announce "FAILED with seed $seed: ${failed[*]}"; fi
if [ "${ended[*]}" != "0 0 0" ]; then
  announce "what FAILED in any lane, above"
  grep -hE '^(FAILED|ERROR) |(failed|error).* in [0-9.]+s' "$logs"/{first,second,third}
fi
[ ${#failed[@]} = 0 ] && [ "${ended[*]}" = "0 0 0" ]
