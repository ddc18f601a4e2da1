"""The modules of the package and what they import, read from their source."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "inbox"


@dataclass(frozen=True)
class Module:
    path: Path

    @property
    def name(self) -> str:
        """Dotted, such as `inbox.core.event`; a package goes by its own name."""
        parts = self.path.relative_to(PACKAGE.parent).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def source(self) -> str:
        return self.path.read_text("utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source, self.path)

    @property
    def imports(self) -> set[str]:
        """Every module imported, those for the type checker alone included: they say what a reader must know."""
        return {name for node in ast.walk(self.tree) for name in self._imported(node)}

    def _imported(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{self.name}:{node.lineno}: imports are absolute, so that they can be read"
            yield from (self._module_of(f"{node.module}.{alias.name}", str(node.module)) for alias in node.names)

    def _module_of(self, name: str, parent: str) -> str:
        """`from inbox.core import event` imports a module, `from inbox.errors import InboxError` does not."""
        path = PACKAGE.parent.joinpath(*name.split("."))
        return name if path.with_suffix(".py").exists() or path.is_dir() else parent


def modules() -> list[Module]:
    return [Module(path) for path in sorted(PACKAGE.rglob("*.py"))]
