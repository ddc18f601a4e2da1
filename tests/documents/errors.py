"""`docs/reference/errors.md`: each error and each code of a refusal, what it means, what to do.

The names come from the code, and so does what they mean; what to do stands here. A name without it is an error.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import inbox
from inbox import errors
from inbox.core.attributes import REQUIRED
from inbox.runtime.worker import Exit
from tests.documents.docstrings import SECTIONS, WRITTEN, parse, table

_PACKAGE = Path(inbox.__file__).parent

_INTRODUCTION = """
Errors are split by who must act. `Reject` and `Retry` are decisions of a handler and stand outside the tree:
`except InboxError` does not catch them. No message holds a payload, a secret or what a peer wrote; such facts are
attributes or the `__cause__`.
"""

_NONE = "none"
_GOES_ON = "none, the run goes on"
_UNTIL_PATIENCE_ENDS = "none, the run goes on; past `patience` 1"

#: What to do about each error, and how `inbox run` ends by it.
TO_DO: dict[str, tuple[str, str]] = {
    "InboxError": ("Catch it where all of these are meant.", _NONE),
    "StartupError": ("What the message says; then start again.", "2"),
    "ConfigurationError": ("Correct the setting, the variable or the call that the message names.", "2"),
    "SchemaError": ("`inbox schema apply`, or what each of `problems` says.", "2; of `inbox schema check` 1"),
    "TopologyError": ("Give the queue the arguments that the message shows, or name another queue.", "2; in a run 1"),
    "TlsError": ("Correct the server's certificate or `tls_ca`, or do not ask for TLS.", "2"),
    "GuardError": ("Use versions of the drivers that the package allows.", "2"),
    "Refused": ("Look at the quarantine; mend the producer, or the handler; replay.", _GOES_ON),
    "Undecodable": ("Mend the producer: the code says what is wrong.", _GOES_ON),
    "Unauthentic": ("Find out who sent it; correct the verifier's keys if it was meant to pass.", _GOES_ON),
    "NoHandler": ("Deploy the handler and replay, or name the type in `unknown_types`.", _GOES_ON),
    "IdentityConflict": ("Ask the producer why one id has two contents; `discard` one.", _GOES_ON),
    "HandlerFault": ("Mend the handler that the log names.", _GOES_ON),
    "UnitMisused": ("Do what the message says instead, such as `begin_nested()` around a flush.", _GOES_ON),
    "DeadlineExceeded": ("Make the handler faster, or `deadline` longer.", _GOES_ON),
    "StoreError": ("Nothing, unless it lasts: then look at the database.", _UNTIL_PATIENCE_ENDS),
    "Contended": ("Nothing; where it piles up, shorten the transactions that hold the locks.", _GOES_ON),
    "StoreUnavailable": ("Bring the database back; intake resumes by itself.", _UNTIL_PATIENCE_ENDS),
    "QuarantineFull": (
        "Replay, discard and prune, or raise the bounds; intake resumes by itself.",
        _GOES_ON,
    ),
    "CommitUnknown": ("Nothing: it is resolved over another connection.", _GOES_ON),
    "Torn": ("Take COMMIT and DDL out of the procedure; look at what it left; then discard.", _GOES_ON),
    "TransportError": ("Bring the broker back; it connects again by itself.", _UNTIL_PATIENCE_ENDS),
    "StopTimeout": ("Find out what the handlers wait for; what they had begun is undone and comes again.", "3"),
    "NotDone": ("Do not acknowledge, unless it is `AlreadyProcessed`.", _NONE),
    "AlreadyProcessed": ("Acknowledge.", _NONE),
    "TryAgain": ("Do not acknowledge; let it come again.", _NONE),
    "NotApplied": ("Do not acknowledge; let it come again.", _NONE),
    "CommitUnresolved": ("Do not acknowledge; when it comes again, the claim tells.", _NONE),
    "Reject": ("Raise it where no repetition can help: the event is quarantined as `rejected`.", _NONE),
    "Retry": ("Raise it where a repetition can help; it is an attempt.", _NONE),
}

#: What each code of a refusal means, and what to do.
CODES: dict[str, tuple[str, str]] = {
    **{
        f"missing-{name}": (f"the attribute `{name}` is absent or empty", "mend the producer")
        for name in ("id", "source", "type", "specversion")
    },
    "ambiguous-attributes": (
        "an attribute came twice, and the two differ or are spelt in two ways",
        "mend the producer",
    ),
    "bad-attribute": ("an attribute has a name or a value that CloudEvents does not allow", "mend the producer"),
    "bad-data": (
        "`data_base64` is none, or it contradicts `data`, or data is not a text as its type says",
        "mend the producer",
    ),
    "bad-header": ("a header that was asked for is not text in UTF-8", "mend the producer"),
    "bad-json": ("what should be JSON is not: NaN, a key twice, a broken end", "mend the producer"),
    "bad-time": ("`time` is no RFC 3339 timestamp", "mend the producer"),
    "batch": (
        "several events in one message, which one acknowledgement cannot settle",
        "let the producer send them singly",
    ),
    "dead-lettered": (
        "the broker gave the message up: a limit, a time to live, a full queue",
        "find out which; then replay",
    ),
    "id-too-long": ("the id does not fit its column, and is never cut", "mend the producer"),
    "identity-conflict": ("a known id with other content", "ask the producer; discard one"),
    "invalid-payload": (
        "the data does not fit the class that the handler asks for; the detail names the field",
        "mend the producer or the class; then replay",
    ),
    "no-cloudevent": (
        "no attribute headers and no CloudEvents content type",
        "find out what else is routed to the queue",
    ),
    "no-handler": ("no handler for its type", "deploy it and replay, or name the type in `unknown_types`"),
    "refused": ("a refusal of your own code without a code of its own", "what its detail says"),
    "invalid": (
        "a job event of Fetcher that no key has signed as it stands; its [reasons](../fetcher.md#what-is-checked)",
        "`inbox fetcher verify`; find out who sent it, or correct keys and replay",
    ),
    "inconsistent": (
        "an authentic job event of Fetcher in headers of another one, or another tenant's",
        "`inbox fetcher verify`; find out who sent it, or correct the verifier's settings and replay",
    ),
    "result-bad-path": ("the event names no path of a stored result", "ask the provider"),
    "result-malformed": ("a stored result is authentic, and no result", "ask the provider"),
    "result-no-key": ("a stored result is encrypted, and there is no storage key", "give the reader one; then replay"),
    "result-not-authentic": (
        "a stored result has another size or MAC than its event says",
        "find out who changed it; correct keys and replay",
    ),
    "result-not-decryptable": ("no storage key opens a stored result", "correct keys and replay"),
    "result-too-large": ("a stored result is larger than the reader's limit", "raise the limit; then replay"),
    "stale": (
        "an authentic job event of Fetcher, signed longer ago than `max_age`, or in the future",
        "replay it: a replay is exempt; then raise `max_age`, or set clocks",
    ),
    "unauthentic": ("the verifier says no", "find out who sent it; correct keys and replay"),
    "undecodable": ("it cannot be read, and nothing more is known", "what its detail says"),
    "unreadable-header": (
        "the client library cannot parse the header frame; the raw frame is kept",
        "mend the producer",
    ),
    "unreadable-route": ("exchange or routing key are not UTF-8", "mend the producer"),
    "unsupported-format": ("another event format than JSON in UTF-8", "let the producer send JSON, or binary mode"),
    "unsupported-specversion": ("another version of CloudEvents than 1.0", "mend the producer"),
}

#: What else ends in quarantine: an event that could be read, and that its handler or its luck brought there.
REASONS: dict[str, tuple[str, str]] = {
    "contended": (
        "released more than `max_releases` times: locks, lost connections",
        "find who holds the locks; then replay",
    ),
    "crashed": ("killed its process `max_attempts` times while it ran alone", "mend the handler; then replay"),
    "deadline": ("passed the deadline in its last attempt", "make it faster, or `deadline` longer; then replay"),
    "handler-error": ("the handler raised in its last attempt; the detail says what and where", "mend it; then replay"),
    "rejected": ("the handler raised `Reject`; the detail is its reason", "what the reason says"),
    "retries-used-up": ("the handler asked for another try once too often", "what it waits for; then replay"),
    "torn": (
        "a stored procedure ended the transaction from inside; the row stays",
        "look at what it left; then discard",
    ),
    "unit-misused": ("the handler did what would have split its unit; the detail says what", "mend it; then replay"),
    "verifier-failed": (
        "the verifier could not decide, more than `max_releases` times",
        "mend the verifier; then replay",
    ),
}

#: Reasons of log lines only: the event comes again.
PASSING: dict[str, str] = {
    "commit-unresolved": "nobody could say whether a COMMIT took place",
    "early": "a copy came before its time",
    "retry-asked-for": "the handler raised `Retry`; the detail names a class of your own",
    "store-unavailable": "the database takes no writes",
    "suspect": "a process died while it ran; it waits to run alone",
}

EXITS: dict[Exit, str] = {
    Exit.STOPPED: "stopped as asked",
    Exit.FAILED: "the broker or the database stayed away past its `patience`, the topology was changed, a platform "
    "ended the subscription, or a defect",
    Exit.NOT_STARTED: "not started; one line names the fix",
    Exit.STOPPED_HARD: "stopped hard: a handler did not come back, or over a lease acknowledgements were not confirmed",
}


def page() -> str:
    check(named_in_code(), {*CODES, *REASONS, *PASSING})
    check(set(classes()), {*TO_DO})
    assert {f"missing-{name}" for name in REQUIRED} <= {*CODES}
    tree = re.search(r"```\n(.*?)```", errors.__doc__ or "", re.DOTALL)
    assert tree is not None
    lines = [
        WRITTEN,
        "# Errors and refusals",
        *_INTRODUCTION.splitlines(),
        "",
        "```text",
        tree.group(1).rstrip(),
        "```",
        "",
    ]
    lines += ["## Errors", "", "Those that `inbox` does not export are in `inbox.errors`.", ""]
    for name in classes():
        lines += _of_error(name)
    lines += [
        "## Codes of refusals",
        "",
        "The column `reason` of the quarantine, and `Refused.code`; a verifier of yours may add its own.",
        "",
    ]
    lines += table(("code", "means", "do"), *((f"`{code}`", *CODES[code]) for code in sorted(CODES)))
    lines += ["## Other reasons in quarantine", ""]
    lines += table(("reason", "means", "do"), *((f"`{reason}`", *REASONS[reason]) for reason in sorted(REASONS)))
    lines += ["These appear in the log only, for the event comes again:", ""]
    lines += table(("reason", "means"), *((f"`{reason}`", PASSING[reason]) for reason in sorted(PASSING)))
    lines += ["## Exit codes of `inbox run`", ""]
    lines += table(("code", "means"), *((str(int(code)), EXITS[code]) for code in Exit))
    lines += ["Those of the other commands stand with [each of them](commands.md).", ""]
    return "\n".join(lines).rstrip() + "\n"


def check(found: set[str], described: set[str]) -> None:
    assert found == described, (
        f"described, and not there: {described - found}; there, and not described: {found - described}"
    )


def classes() -> list[str]:
    """The errors, in the order of their file, which is that of the tree."""
    found = inspect.getmembers(errors, lambda kind: inspect.isclass(kind) and kind.__module__ == errors.__name__)
    return sorted((name for name, _ in found), key=lambda name: inspect.getsourcelines(getattr(errors, name))[1])


def _of_error(name: str) -> Iterator[str]:
    said, (to_do, exit_code) = parse(getattr(errors, name).__doc__), TO_DO[name]
    is_public = name in inbox.__all__
    yield from (f"### {name}", "", said.text, "")
    for section in SECTIONS:
        for entry, text in said.entries.get(section, ()):
            yield f"- `{entry}`: {text}"
    yield f"- What to do: {to_do}"
    yield f"- Exit code of `inbox run`: {exit_code}"
    yield f"- Import: `from {'inbox' if is_public else 'inbox.errors'} import {name}`"
    yield ""


def named_in_code() -> set[str]:
    """Every code of a refusal and every reason of a failure that the package writes."""
    files = [
        _PACKAGE / "errors.py",
        *(file for part in ("core", "runtime", "adapters", "fetcher") for file in (_PACKAGE / part).rglob("*.py")),
    ]
    return {code for file in files for node in ast.walk(ast.parse(file.read_text())) for code in _codes(node)}


def _codes(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.keyword(arg="code", value=ast.Constant(value=str() as code)):
            yield code
        case ast.keyword(arg="code", value=ast.JoinedStr(values=[ast.Constant(value=str() as begin), _])):
            yield from (f"{begin}{name}" for name in REQUIRED)
        case ast.Assign(targets=[ast.Name(id="code")], value=ast.Constant(value=str() as code)):
            yield code
        case ast.Call(func=ast.Name(id="Failure"), args=[_, ast.Constant(value=str() as reason), *_]):
            yield reason
        case ast.Call(func=ast.Name(id="Quarantine"), args=[said]):
            yield from (str(word.value) for word in ast.walk(said) if isinstance(word, ast.Constant))
        case _:
            pass
