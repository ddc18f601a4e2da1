"""Where a server's programs are: on this machine, or in a tree of unpacked packages."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.services.processes import NOBODY, is_root

SYSTEM_FOLDERS = (
    "/usr/lib/rabbitmq/bin",
    "/usr/sbin",
    "/usr/bin",
    "/usr/local/sbin",
    "/usr/local/bin",
    "/sbin",
    "/bin",
)

# Enters an unpacked tree in a mount namespace of its own, so that nothing of it is ever seen outside. Each step
# replaces the process: the server has the id that was started.
ENTER_TREE = """
tree=$1 user=$2; shift 2
mkdir -p "$tree/var/tmp"
for folder in proc dev tmp var/tmp; do mount --rbind "/$folder" "$tree/$folder" || exit 125; done
exec chroot --userspec="$user" "$tree" "$@"
"""


@dataclass(frozen=True)
class Installation:
    """`tree` is None for the machine's own programs."""

    tree: Path | None = None

    def find(self, *programs: str) -> str | None:
        """The path of the first of these programs, as it is called inside the installation."""
        for program in programs:
            if self.tree is None:
                path = os.pathsep.join([*SYSTEM_FOLDERS[:1], os.environ.get("PATH", ""), *SYSTEM_FOLDERS])
                found = shutil.which(program, path=path)
                if found:
                    return found
            else:
                for folder in SYSTEM_FOLDERS:
                    if (self.tree / folder[1:] / program).exists():
                        return f"{folder}/{program}"
        return None

    def enter(self, command: Sequence[str]) -> list[str]:
        """The command as it is started from outside; what is below /tmp and /var/tmp has the same path inside."""
        if self.tree is not None:
            shell = ["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER_TREE, "enter"]
            return [*shell, str(self.tree), f"{NOBODY}:{NOBODY}", *command]
        if is_root():
            return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command]
        return list(command)
