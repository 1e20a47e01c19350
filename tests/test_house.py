"""The house keeps itself in order: rooms reach only left, equations cite, names are ours."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "bacon_gcd"
FILES = sorted(PACKAGE.rglob("*.py"))
# Rooms whose public functions are mathematics: each must say where it comes from.
EQUATION_ROOMS = ["losses", "alignment", "pseudo_labels", "objectives", "distribution"]
EQUATION_ROOMS += ["class_sizes"]
SOURCES = re.compile(
    r"Eq\. ?\(|§|\bApp\b|\bspec\b|\bours\b|Algorithm|Claim"
    r"|SimGCD|ORCA|OpenCon|TRSSL|\bABC\b|DARP|\bGCD\b|FixMatch|Sinkhorn|mixup|Hungarian",
    re.IGNORECASE,
)
SHORTHAND = re.compile(r"(^|_)(ulb|lb|uq|idxs?|lt|ce|cl|cps|args)($|_)", re.IGNORECASE)
ALLOWED_NAMES = {"cifar10-lt"}


def rooms() -> list[str]:
    text = (ROOT / "docs" / "architecture.md").read_text()
    block = re.search(r"```rooms\n(.*?)```", text, re.DOTALL)
    assert block, "docs/architecture.md has no ```rooms list"
    return block.group(1).split()


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(p for p in parts if p != "__init__")


def room_of(module: str) -> str | None:
    """The most specific room in the list that holds the module."""
    known = set(rooms())
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        if ".".join(parts[:length]) in known:
            return ".".join(parts[:length])
    return None


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bacon_gcd"):
            base = (node.module or "").removeprefix("bacon_gcd").lstrip(".")
            for alias in node.names:
                whole = f"{base}.{alias.name}".lstrip(".")
                found.add(whole if room_of(whole) == whole else base)
        elif isinstance(node, ast.Import):
            found |= {
                a.name.removeprefix("bacon_gcd").lstrip(".")
                for a in node.names
                if a.name.startswith("bacon_gcd")
            }
    return found - {""}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_room_imports_only_from_its_left(path):
    module = module_of(path)
    if module in {"", "__main__", "data", "backbone"}:
        return  # the front door and empty folders
    room, order = room_of(module), rooms()
    assert room, f"{module} is in no room of docs/architecture.md"
    for imported in imports_of(path):
        other = room_of(imported)
        assert other, f"{module} imports {imported}, which is in no room"
        assert order.index(other) <= order.index(room), f"{module} reaches right to {imported}"


def test_every_room_of_the_list_exists():
    modules = {module_of(path) for path in FILES}
    for room in rooms():
        assert any(m == room or m.startswith(room + ".") for m in modules), f"no file for {room}"


@pytest.mark.parametrize("room", EQUATION_ROOMS)
def test_a_public_function_that_is_an_equation_cites_its_source(room):
    tree = ast.parse((PACKAGE / f"{room}.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            cited = SOURCES.search(ast.get_docstring(node) or "")
            assert cited, f"{room}.{node.name} cites no equation, section or source"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_private_shorthand_is_used_as_a_name(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.append(node.name)
        if isinstance(node, ast.FunctionDef):
            names += [a.arg for a in node.args.args + node.args.kwonlyargs]
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
        for name in names:
            assert not SHORTHAND.search(name), f"{path.name}:{node.lineno}: {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_nothing_untrusted_is_executed(path):
    """No eval, exec, hub code or unsafe loads anywhere in the package."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        keywords = {k.arg: ast.unparse(k.value) for k in node.keywords}
        assert called not in {"eval", "exec", "pickle.load", "pickle.loads", "torch.hub.load"}
        if called == "torch.load":
            assert keywords.get("weights_only") == "True", f"{path.name}:{node.lineno}"
        if called == "np.load":
            assert keywords.get("allow_pickle") == "False", f"{path.name}:{node.lineno}"


def test_importing_the_package_or_asking_for_help_loads_no_torch():
    import subprocess
    import sys

    code = (
        "import sys, bacon_gcd, bacon_gcd.cli; "
        "assert not {'torch', 'sklearn', 'matplotlib', 'plotly'} & set(sys.modules), "
        "sorted({'torch', 'sklearn', 'matplotlib', 'plotly'} & set(sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
