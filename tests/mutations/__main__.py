"""Make every mutation, and see that it is caught: `make mutations`, or `python -m tests.mutations [NAME …]`.

First all the tests run in a copy without a mutation: what fails there proves nothing. Exits with 1 if a mutation
survives or is out of date.
"""

import argparse
import sys
from collections.abc import Sequence

from tests.mutations.catalog import MUTATIONS, Mutation
from tests.mutations.trial import StalePatchError, ask, copied, id_of, try_mutation
from tests.services.catalog import PAIRS
from tests.services.session import Services

_BASELINE_PATIENCE = 900


def main(words: Sequence[str] | None = None) -> int:
    """Run, and print one line for each."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description="Break the code, and be found out.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutations to make; all, where none is named")
    parser.add_argument("--pair", choices=[*PAIRS], default="newest", help="on these servers")
    given = parser.parse_args(words)
    unknown = set(given.names) - {mutation.name for mutation in MUTATIONS}
    if unknown:
        parser.error(f"there is no mutation {', '.join(sorted(unknown))}; there are {', '.join(map(str, MUTATIONS))}")
    chosen = [mutation for mutation in MUTATIONS if not given.names or mutation.name in given.names]
    names = PAIRS[given.pair]
    with Services() as services:
        services.start([names.database, names.broker])
        environment = {services[name].offer.variable: services[name].dsn for name in (names.database, names.broker)}
        return _run(chosen, given.pair, environment)


def _run(chosen: Sequence[Mutation], pair: str, environment: dict[str, str]) -> int:
    with copied() as root:
        tests = sorted({id_of(mutation, pair) for mutation in chosen})
        print(f"the code as it is: {len(tests)} tests", flush=True)
        whole = ask(tests, root, environment, _BASELINE_PATIENCE)
    if whole.code != 0:
        print(whole.said)
        print("the tests fail without a mutation: they prove nothing")
        return 1
    print(f"passed in {whole.seconds:.1f} s\n", flush=True)
    survivors = []
    width = max(len(mutation.name) for mutation in chosen)
    for number, mutation in enumerate(chosen, 1):
        print(f"{number:2}/{len(chosen)}  {mutation.name:{width}}  ", end="", flush=True)
        test = mutation.test.partition("::")[2].replace("-PAIR", "").replace("PAIR-", "").replace("[PAIR]", "")
        try:
            trial = try_mutation(mutation, pair, environment)
        except StalePatchError as error:
            survivors.append(mutation.name)
            print(f"OUT OF DATE: {error}", flush=True)
            continue
        if trial.is_caught:
            print(f"caught   {trial.seconds:5.1f} s  {test}", flush=True)
        else:
            survivors.append(mutation.name)
            print(f"SURVIVED {trial.seconds:5.1f} s  {test} (pytest's exit code {trial.code})", flush=True)
            print(trial.said, file=sys.stderr)
    caught = len(chosen) - len(survivors)
    print(f"\n{caught} of {len(chosen)} mutations caught" + (f"; NOT: {', '.join(survivors)}" if survivors else ""))
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
