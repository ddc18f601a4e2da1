"""A module whose own import fails."""

import no_such_library  # type: ignore[import-not-found] # that is the point

inbox = no_such_library.inbox
