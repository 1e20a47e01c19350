"""Change one operator, constant or detach at a time, and see whether the tests notice.

    python scripts/mutate.py                          # the mathematics; about half an hour
    python scripts/mutate.py bacon_gcd/losses.py --save left.json
    python scripts/mutate.py bacon_gcd/losses.py --again left.json    # only those, after new tests

Every change runs the module's own test file only, in a fork of a process that has run the tests
once, so that a change costs the tests and not the imports. What survives is printed with its line.
Leave the files alone while it runs.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import gc
import importlib.abc
import importlib.util
import io
import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

TARGETS = {
    "bacon_gcd/losses.py": ["tests/test_losses.py"],
    "bacon_gcd/pseudo_labels.py": ["tests/test_pseudo_labels.py"],
    "bacon_gcd/distribution.py": ["tests/test_distribution.py"],
    "bacon_gcd/metrics.py": ["tests/test_metrics.py"],
    "bacon_gcd/cluster.py": ["tests/test_cluster_limits.py", "tests/test_cluster.py"],
    **{
        str(path): [f"tests/classes/test_{path.name}"]
        for path in sorted(Path("bacon_gcd/classes").glob("*.py"))
        if path.name not in ("__init__.py", "rules.py")  # constants; `python -m bench rules`
    },
}
LEAST = 90  # percent that must be noticed
TIMEOUT = 30  # seconds of computing, whatever else runs; a change that never ends is noticed, too

FLIPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
DROPPED_CALLS = ("detach",)


@dataclass(frozen=True)
class Change:
    """One changed module."""

    file: str
    line: int
    before: str
    after: str


def changes(file: Path) -> Iterator[tuple[Change, str]]:
    """Every change of a module, with the source of the changed module."""
    tree = ast.parse(file.read_text())
    for number, node in enumerate(_code(tree)):
        for variant in _variants(node):
            changed = ast.fix_missing_locations(_replaced(tree, number, variant))
            change = Change(str(file), node.lineno, ast.unparse(node), ast.unparse(variant))
            yield change, ast.unparse(changed)


def _code(tree: ast.AST) -> Iterator[ast.expr]:
    """The expressions that compute something: no annotations, decorators, messages, imports."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Raise | ast.Import | ast.ImportFrom | ast.JoinedStr):
            continue
        if isinstance(child, ast.keyword) and child.arg == "strict":  # of zip: a check of ours
            continue
        if isinstance(child, ast.AnnAssign):
            yield from _code(ast.Expr(child.value)) if child.value else ()
            continue
        about = [getattr(tree, "returns", None), *getattr(tree, "decorator_list", [])]
        if isinstance(child, ast.arg) or any(child is each for each in about):
            continue
        if isinstance(child, ast.expr) and hasattr(child, "lineno"):
            yield child
        yield from _code(child)


def _variants(node: ast.expr) -> Iterator[ast.expr]:
    """What a node is changed into."""
    match node:
        case ast.BinOp(op=op) if type(op) in FLIPS:
            yield _with(node, op=FLIPS[type(op)]())
        case ast.BoolOp(op=op):
            yield _with(node, op=FLIPS[type(op)]())
        case ast.Compare(ops=[op]):
            yield _with(node, ops=[FLIPS[type(op)]()])
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            yield copy.deepcopy(operand)
        case ast.Constant(value=bool(value)):
            yield _with(node, value=not value)
        case ast.Constant(value=int(value)):
            yield _with(node, value=value + 1)
        case ast.Constant(value=float(value)):
            yield _with(node, value=value * 2 if value else 1.0)
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in DROPPED_CALLS:
            yield copy.deepcopy(value)


def _with(node: ast.expr, **fields: object) -> ast.expr:
    changed = copy.deepcopy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _replaced(tree: ast.Module, number: int, variant: ast.expr) -> ast.Module:
    """A copy of the tree in which the expression of this number is another one."""
    changed = copy.deepcopy(tree)
    wanted = next(node for n, node in enumerate(_code(changed)) if n == number)

    class Swap(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return variant if node is wanted else self.generic_visit(node)

    swapped: ast.Module = Swap().visit(changed)
    return swapped


class ChangedModule(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads the changed source in place of a module's file."""

    def __init__(self, name: str, source: str, file: str) -> None:
        self.name, self.source, self.file = name, source, file

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def] # noqa: D102
        if name == self.name:
            return importlib.util.spec_from_loader(name, self, origin=self.file)
        return None

    def exec_module(self, module):  # type: ignore[no-untyped-def] # noqa: D102
        module.__file__ = self.file
        exec(compile(self.source, self.file, "exec"), module.__dict__)  # noqa: S102


def noticed(change: Change, source: str, tests: list[str]) -> bool:
    """Whether any test fails; runs in a fork."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] != 0
    name = change.file.removesuffix(".py").replace("/", ".")
    sys.meta_path.insert(0, ChangedModule(name, source, change.file))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    signal.setitimer(signal.ITIMER_PROF, TIMEOUT)
    signal.alarm(20 * TIMEOUT)  # one that waits for ever computes nothing
    os._exit(run_tests(tests))


def run_tests(tests: list[str]) -> int:
    """The exit code of pytest; examples of hypothesis are the same for every change."""
    import pytest

    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov"]
    return int(pytest.main([*options, *tests]))


def load_libraries() -> None:
    """Import what the tests need, except the package itself."""
    os.environ["OMP_THREAD_LIMIT"] = "1"  # a fork would wait for threads that it does not have
    import hypothesis
    import matplotlib  # noqa: F401
    import msgspec  # noqa: F401
    import PIL.Image  # noqa: F401
    import pyarrow  # noqa: F401
    import pytest  # noqa: F401
    import safetensors.torch  # noqa: F401
    import scipy.optimize
    import scipy.stats  # noqa: F401
    import sklearn.cluster
    import sklearn.metrics  # noqa: F401
    import torch

    torch.set_num_threads(1)
    hypothesis.settings.register_profile("fixed", derandomize=True, database=None, deadline=None)
    hypothesis.settings.load_profile("fixed")


def warm_up(tests: list[str]) -> None:
    """Run the tests unchanged, then forget the package and keep every library they have loaded."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        failed = run_tests(tests)
    if failed:
        sys.exit(f"{said.getvalue()}\n{' '.join(tests)}: fails without any change")
    for name in [n for n in sys.modules if n.split(".")[0] in ("bacon_gcd", "tests", "conftest")]:
        del sys.modules[name]
    gc.collect()
    gc.freeze()  # the forks need not look through what is loaded


def examine(file: str, tests: list[str], only: list[Change] | None) -> tuple[int, list[Change]]:
    """How many changes there were, and those that no test noticed."""
    warm_up(tests)
    survived, total = [], 0
    for change, source in changes(Path(file)):
        if only is not None and change not in only:
            continue
        total += 1
        if not noticed(change, source, tests):
            survived.append(change)
            print(f"{change.file}:{change.line}: {change.before}  ->  {change.after}", flush=True)
    print(f"{file}: {total - len(survived)} of {total} noticed", flush=True)
    return total, survived


def main() -> None:
    """Examine the given modules, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="*", help="modules; all of the mathematics if none")
    parser.add_argument("--tests", nargs="*", help="tests in place of the modules' own")
    parser.add_argument("--save", type=Path, help="JSON file for what survived")
    parser.add_argument("--again", type=Path, help="try only what survived, as saved in this file")
    given = parser.parse_args()
    sys.path.insert(0, str(Path.cwd()))
    load_libraries()
    only = [Change(**each) for each in json.loads(given.again.read_text())] if given.again else None
    total, survived = 0, []
    for file in given.files or TARGETS:
        n, left = examine(file, given.tests or TARGETS[file], only)
        total += n
        survived += left
    share = 100 * (1 - len(survived) / max(total, 1))
    print(f"{total - len(survived)} of {total} changes noticed, {share:.1f} %")
    if given.save:
        given.save.write_text(json.dumps([asdict(each) for each in survived], indent=1) + "\n")
    sys.exit(share < LEAST)


if __name__ == "__main__":
    main()
