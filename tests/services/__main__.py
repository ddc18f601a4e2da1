"""`python -m tests.services`: start both pairs, print how to reach them, stop them at Ctrl-C."""

import signal
import sys

from tests.services.catalog import PAIRS
from tests.services.service import Service, ServiceError
from tests.services.session import Services, names_of


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    names = names_of(PAIRS)
    try:
        with Services(say=lambda line: print(line, file=sys.stderr, flush=True)) as services:
            services.start(names)
            for name in names:
                for line in _exports(services[name]):
                    print(line, flush=True)
            print(services.warning or "services: Ctrl-C stops them", file=sys.stderr, flush=True)
            signal.pause()
    except KeyboardInterrupt:
        print("services: stopped", file=sys.stderr)
    except ServiceError as error:
        print(f"services: {error}", file=sys.stderr)
        return 1
    return 0


def _exports(service: Service) -> list[str]:
    lines = [f"export {service.offer.variable}='{service.dsn}'"]
    if service.tls is not None:
        lines.append(f"export {service.offer.tls_variable}='{service.tls.dsn}'")
        lines.append(f"export INBOX_TLS_AUTHORITY='{service.tls.authority}'")
    return lines


if __name__ == "__main__":
    sys.exit(main())
