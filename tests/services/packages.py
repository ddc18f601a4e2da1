"""Servers from the archive of the distribution, where this machine has none: unpacked privately, never installed.

The mirror is the one that apt already uses here. A private apt state resolves and downloads the packages of another
release, `dpkg -x` unpacks them into a tree that is kept for later runs, and the servers are started inside that tree.
Nothing is registered with the system, no script of a package runs, and no server is started by itself.
"""

import fcntl
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.services.catalog import Offer, Say, ServiceName
from tests.services.installation import Installation
from tests.services.processes import NOBODY, is_root, last_lines, run
from tests.services.service import ServiceError

# What the servers' start scripts call, in a tree that has only what the packages depend on.
SHELL_PACKAGES: Final = ("dash", "bash", "coreutils", "sed", "grep", "gawk", "hostname", "util-linux", "libc-bin")
PROGRESS_EVERY: Final = 5.0


@dataclass(frozen=True)
class Release:
    """A release of a distribution that has both servers of a pair, whatever release this machine runs."""

    suite: str
    components: str
    packages: tuple[str, ...]
    keyring: str


_DEBIAN: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
_UBUNTU: Final = "/usr/share/keyrings/ubuntu-archive-keyring.gpg"
_NEWEST: Final = ("mysql-server", "rabbitmq-server")
_OLDEST: Final = ("mariadb-server", "rabbitmq-server")
_DEBIAN_NEWEST: Final = Release("sid", "main", _NEWEST, _DEBIAN)
_DEBIAN_OLDEST: Final = Release("bookworm", "main", _OLDEST, _DEBIAN)
_UBUNTU_NEWEST: Final = Release("resolute", "main universe", _NEWEST, _UBUNTU)
_UBUNTU_OLDEST: Final = Release("noble", "main universe", _OLDEST, _UBUNTU)

RELEASES: Final[dict[str, dict[ServiceName, Release]]] = {
    "debian": {
        "mysql": _DEBIAN_NEWEST,
        "rabbit4": _DEBIAN_NEWEST,
        "mariadb": _DEBIAN_OLDEST,
        "rabbit3": _DEBIAN_OLDEST,
    },
    "ubuntu": {
        "mysql": _UBUNTU_NEWEST,
        "rabbit4": _UBUNTU_NEWEST,
        "mariadb": _UBUNTU_OLDEST,
        "rabbit3": _UBUNTU_OLDEST,
    },
}


def cache_folder() -> Path:
    given = os.environ.get("INBOX_SERVICES_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(base) / "inbox-test-services"


def unpacked_installation(offer: Offer, say: Say) -> Installation:
    """The tree that holds this service, made on first use. Raises ServiceError that says why it cannot be had."""
    release = RELEASES.get(_distribution(), {}).get(offer.name)
    if release is None:
        raise ServiceError("this is neither Debian nor Ubuntu")
    if not is_root():
        raise ServiceError("unpacked packages need root (chroot in a mount namespace)")
    missing = [tool for tool in ("apt-get", "dpkg", "unshare", "chroot", "setpriv") if shutil.which(tool) is None]
    if missing:
        raise ServiceError(f"without {', '.join(missing)} no package can be unpacked")
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    tree = folder / f"{_distribution()}-{release.suite}"
    with _locked(folder / f"{tree.name}.lock"):
        if not (tree / ".complete").exists():
            _Unpacking(release, tree, folder, say).run()
    return Installation(tree)


@dataclass(frozen=True)
class _Unpacking:
    release: Release
    tree: Path
    folder: Path
    say: Say

    @property
    def state(self) -> Path:
        return self.folder / f"apt-{self.release.suite}"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.tree.name}.log"

    def run(self) -> None:
        packages = " and ".join(self.release.packages)
        self.say(f"services: fetching {packages} of {self.release.suite} into {self.tree}, once; log: {self.log}")
        begun = time.monotonic()
        for left in (self.tree, self.state):
            shutil.rmtree(left, ignore_errors=True)
        self.log.unlink(missing_ok=True)
        self._describe_archive()
        self._fetch()
        self._make_tree()
        shutil.rmtree(self.state)
        (self.tree / ".complete").touch()
        self.say(f"services: {self.release.suite} unpacked after {time.monotonic() - begun:.0f} s")

    def _describe_archive(self) -> None:
        for part in ("state/lists/partial", "cache/archives/partial", "preferences"):
            (self.state / part).mkdir(parents=True)
        (self.state / "status").touch()
        mirror = _mirror() or self._mirror_after_update()
        source = f"deb [signed-by={self.release.keyring}] {mirror} {self.release.suite} {self.release.components}\n"
        (self.state / "sources.list").write_text(source)

    def _mirror_after_update(self) -> str:
        self.say("services: this machine has no package lists yet: apt-get update")
        run(["apt-get", "update"], log=self.log, cwd=self.folder, timeout=600)
        mirror = _mirror()
        if mirror is None:
            raise ServiceError("apt knows no archive of this distribution")
        return mirror

    def _apt(self, *arguments: str) -> list[str]:
        options = {
            "Dir::State": self.state / "state",
            "Dir::State::status": self.state / "status",
            "Dir::Cache": self.state / "cache",
            "Dir::Etc::sourcelist": self.state / "sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::preferencesparts": self.state / "preferences",
            "APT::Sandbox::User": "root",
        }
        return ["apt-get", "-q", "-y", *(f"-o{name}={value}" for name, value in options.items()), *arguments]

    def _fetch(self) -> None:
        run(self._apt("update"), log=self.log, cwd=self.folder, timeout=600)
        wanted = (*self.release.packages, *SHELL_PACKAGES)
        command = self._apt("--no-install-recommends", "--download-only", "install", *wanted)
        with self.log.open("ab") as output, subprocess.Popen(command, stdout=output, stderr=output) as fetching:
            try:
                while fetching.poll() is None:
                    with suppress(subprocess.TimeoutExpired):
                        fetching.wait(PROGRESS_EVERY)
                        break
                    self.say(f"services:   {self._megabytes()} MB fetched")
            finally:
                fetching.terminate()
        if fetching.returncode != 0:
            raise ServiceError(f"the packages of {self.release.suite} could not be fetched:\n{last_lines(self.log)}")

    def _megabytes(self) -> int:
        archives = self.state / "cache" / "archives"
        return sum(file.stat().st_size for file in _files(archives)) // 1_000_000

    def _make_tree(self) -> None:
        for folder in ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "proc", "dev", "tmp", "etc", "run"):
            (self.tree / folder).mkdir(parents=True)
        for folder in ("bin", "sbin", "lib", "lib64"):
            (self.tree / folder).symlink_to(f"usr/{folder}")
        packages = sorted((self.state / "cache" / "archives").glob("*.deb"))
        self.say(f"services:   unpacking {len(packages)} packages, {self._megabytes()} MB")
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            for _ in threads.map(self._unpack, packages):
                pass
        # What the packages' own scripts would have done.
        for name, target in (("awk", "gawk"), ("sh", "dash")):
            link = self.tree / "usr" / "bin" / name
            link.unlink(missing_ok=True)
            link.symlink_to(target)
        (self.tree / "etc" / "hosts").write_text("127.0.0.1 localhost\n")
        (self.tree / "etc" / "passwd").write_text(
            f"root:x:0:0::/root:/bin/sh\nnobody:x:{NOBODY}:{NOBODY}::/nonexistent:/usr/sbin/nologin\n"
        )
        (self.tree / "etc" / "group").write_text(f"root:x:0:\nnogroup:x:{NOBODY}:\n")
        for folder in ("doc", "man", "locale", "info"):
            shutil.rmtree(self.tree / "usr" / "share" / folder, ignore_errors=True)

    def _unpack(self, package: Path) -> None:
        run(["dpkg", "-x", str(package), str(self.tree)], log=self.log, cwd=self.folder)


def _files(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*.deb"):
        if file.exists():
            yield file


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("ID", "")
    except OSError:
        return ""


def _mirror() -> str | None:
    """The archive that apt uses for the packages of this machine, security updates apart."""
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=False,
    )
    return next((uri for uri in listed.stdout.split() if "security" not in uri and not uri.startswith("file:")), None)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One run at a time makes a tree; the others wait for it."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
