"""Mutants of Python source: one small change each, that a test should notice.

* `mutants_of`: every mutant of a file, by its syntax tree
* `Mutant.apply`: the file's text with the change; lines keep their numbers
* `sample`: mutants of all central modules in a random order, at most one of a line
* `controls`: the same places written anew without a change: no test may notice

What is not changed: texts, messages of errors, annotations, decorators, and numbers below 1e-4
(tolerances, whose exact value no result may depend on).
"""

from __future__ import annotations

import ast
import copy
import random
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

GROUPS: Mapping[str, tuple[str, ...]] = {
    "stats": ("evalstats_plugin/stats/*.py", "evalstats_plugin/stats/*/*.py"),
    "data": ("evalstats_plugin/data/*.py",),
    "scores": ("evalstats_plugin/scores/*.py",),
    "comparisons": ("evalstats_plugin/comparisons/*.py", "evalstats_plugin/comparisons/*/*.py"),
    "irt/estimators": ("evalstats_plugin/irt/estimators/*.py",),
    "ranking/ratings": ("evalstats_plugin/ranking/ratings/*.py",),
    "adaptive": tuple(
        f"evalstats_plugin/adaptive/{name}.py" for name in ("scoring", "selection", "stopping")
    ),
    "logs": ("evalstats_plugin/logs/*.py",),
    "readers": (
        "adapters/*/reader.py",
        *(f"adapters/lm_eval/{name}.py" for name in ("groups", "samples", "values")),
    ),
}
"""Central modules: results depend on each line of theirs."""

TOLERANCE = 1e-4

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.Lt), ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.MatMult: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
_NAMES = {
    "min": "max", "minimum": "maximum", "floor": "ceil", "any": "all", "argmin": "argmax",
    "amin": "amax", "nanmin": "nanmax", "zeros": "ones", "zeros_like": "ones_like", "sum": "max",
    "clamp_min": "clamp_max", "ndtr": "ndtri", "log": "log1p", "sqrt": "square",
}  # fmt: skip
_NAMES |= {other: name for name, other in _NAMES.items()} | {"sum": "max", "max": "min"}
_DROPPED = {"abs", "sqrt", "sorted", "reversed", "abs_", "cumsum", "unique"}
"""Functions of one argument, in whose place the argument may stand."""
_TEXTS = {"left": "right", "right": "left"}
_AUGMENTED = {b"+=": b"-=", b"-=": b"+=", b"*=": b"/=", b"/=": b"*=", b"|=": b"&=", b"&=": b"|="}


@dataclass(frozen=True)
class Mutant:
    """A change of one place of a file."""

    path: str
    where: str
    """Function that the place is in, with its class; empty for the module itself."""
    lines: tuple[int, int]
    """First and last line of what tests must run: a statement, or a function of which this is a
    default value."""
    is_run_on_import: bool
    """Whether it stands outside functions: tests run it before they begin."""
    span: tuple[int, int]
    """Bytes of the file that are replaced."""
    original: str
    mutated: str
    code: str
    """What is written in their place."""
    line: int
    occurrence: int = 0

    @property
    def key(self) -> str:
        """Name that stays the same when other lines of the file change."""
        number = f" #{self.occurrence + 1}" if self.occurrence else ""
        return f"{self.path} {self.where or '(module)'}: {self.original} → {self.mutated}{number}"

    @property
    def group(self) -> str:
        """Central package that the file belongs to."""
        return next(
            name
            for name, patterns in GROUPS.items()
            if any(Path(self.path).match(pattern) for pattern in patterns)
        )

    def apply(self, source: bytes) -> bytes:
        """Return the file with the change; what follows stays on its line."""
        start, end = self.span
        # Inside brackets an end of line means nothing.
        ends = b"\n" * source[start:end].count(b"\n")
        code = self.code.encode()
        code = code[:-1] + ends + code[-1:] if code.endswith(b")") else code + ends
        return source[:start] + code + source[end:]


class _Finder(ast.NodeVisitor):
    """Collects the mutants of a file."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source = path, source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.where: list[str] = []
        self.n_functions = 0
        self.first_line = 1
        self.of_default: tuple[int, int] | None = None
        self.mutants: list[Mutant] = []

    def _at(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._at(node.lineno, node.col_offset), self._at(
            node.end_lineno, node.end_col_offset
        )

    def _add(
        self, node: ast.expr | ast.stmt, span: tuple[int, int], original: str, mutated: str,
        code: str,
    ) -> None:  # fmt: skip
        if original != mutated:
            lines = self.of_default or (self.first_line, node.end_lineno or node.lineno)
            where, on_import = ".".join(self.where), not self.n_functions
            self.mutants.append(
                Mutant(
                    self.path, where, lines, on_import, span, original, mutated, code, node.lineno
                )
            )

    def _swap(self, node: ast.expr, other: ast.expr) -> None:
        text = ast.unparse(other)
        self._add(node, self._span(node), ast.unparse(node), text, f"({text})")

    def visit(self, node: ast.AST) -> None:
        """Remember the statement that a place is in."""
        if isinstance(node, ast.stmt):
            self.first_line = node.lineno
        super().visit(node)

    # What is left alone.

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave texts alone."""

    def visit_Raise(self, node: ast.Raise) -> None:
        """Leave errors alone: the condition that leads to them is changed."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Leave annotations alone."""
        if node.value is not None:
            self.visit(node.value)

    def visit_arguments(self, node: ast.arguments) -> None:
        """Leave annotations alone, but not defaults."""
        for default in (*node.defaults, *filter(None, node.kw_defaults)):
            self.visit(default)

    def visit_keyword(self, node: ast.keyword) -> None:
        """Leave alone what only asks for a check."""
        if node.arg not in {"strict", "slots", "frozen", "dtype", "check", "encoding", "maxsize"}:
            self.visit(node.value)

    def _visit_definition(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        names = {n.attr if isinstance(n, ast.Attribute) else getattr(n, "id", "")
                 for n in node.decorator_list}  # fmt: skip
        if names & {"overload", "abstractmethod"}:
            return
        self.where.append(node.name)
        is_function = isinstance(node, ast.FunctionDef)
        self.n_functions += is_function
        if isinstance(node, ast.FunctionDef):
            self.of_default = (node.body[0].lineno, node.end_lineno or node.lineno)
            self.visit(node.args)
            self.of_default = None
        for statement in node.body:
            self.visit(statement)
        self.n_functions -= is_function
        self.where.pop()

    visit_FunctionDef = _visit_definition  # noqa: N815 - the name is ast's
    visit_ClassDef = _visit_definition  # noqa: N815

    # What is changed.

    def visit_If(self, node: ast.If) -> None:
        """Change the condition to its contrary."""
        if "TYPE_CHECKING" in ast.unparse(node.test):
            return
        self._negate(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        """Change the condition to its contrary."""
        if not isinstance(node.test, ast.Constant):
            self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """Take either branch always."""
        self._swap(node, node.body)
        self._swap(node, node.orelse)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        """Let everything pass."""
        for condition in node.ifs:
            self._swap(condition, ast.Constant(value=True))
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return  # `visit_UnaryOp` does
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            return  # `visit_Compare` does
        self._swap(test, ast.UnaryOp(op=ast.Not(), operand=test))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Drop a sign or a `not`."""
        if not isinstance(node.operand, ast.Constant) or isinstance(node.op, ast.Not):
            self._swap(node, node.operand)
        elif isinstance(node.op, ast.USub) and self._is_number(node.operand):
            self._swap(node, node.operand)
            return
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Move the boundary, and turn the comparison round."""
        for k, operator in enumerate(node.ops):
            for other in _COMPARISONS[type(operator)]:
                changed = copy.deepcopy(node)
                changed.ops[k] = other()
                self._swap(node, changed)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Use another operator; drop the second operand."""
        texts = (ast.JoinedStr,)
        sides = (node.left, node.right)
        if any(isinstance(s, texts) or (isinstance(s, ast.Constant) and isinstance(s.value, str))
               for s in sides):  # fmt: skip
            return
        other = _ARITHMETIC.get(type(node.op))
        of_types = isinstance(node.op, ast.BitOr) and not self.where
        if other is not None and not of_types:
            self._swap(node, ast.BinOp(left=node.left, op=other(), right=node.right))
            self._swap(node, node.left)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Exchange `and` with `or`; drop each part."""
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._swap(node, ast.BoolOp(op=other, values=node.values))
        for k in range(len(node.values)):
            left = [value for j, value in enumerate(node.values) if j != k]
            self._swap(node, left[0] if len(left) == 1 else ast.BoolOp(op=node.op, values=left))
        self.generic_visit(node)

    @staticmethod
    def _is_number(node: ast.expr) -> bool:
        return (
            isinstance(node, ast.Constant)
            and type(node.value) in {int, float}
            and (node.value == 0 or abs(node.value) >= TOLERANCE)
        )

    def visit_Constant(self, node: ast.Constant) -> None:
        """Count one further; double what is no whole number; change yes to no."""
        if isinstance(node.value, bool):
            self._swap(node, ast.Constant(value=not node.value))
        elif isinstance(node.value, str) and node.value in _TEXTS:
            self._swap(node, ast.Constant(value=_TEXTS[node.value]))
        elif self._is_number(node):
            value = node.value
            assert isinstance(value, int | float)
            more = value * 2 if isinstance(value, float) and value % 1 else value + 1
            self._swap(node, ast.Constant(value=more))

    def visit_Call(self, node: ast.Call) -> None:
        """Call the counterpart; have the argument itself."""
        function = node.func
        name = getattr(function, "attr", getattr(function, "id", ""))
        if name in _NAMES:
            changed = copy.deepcopy(node)
            if isinstance(changed.func, ast.Attribute):
                changed.func.attr = _NAMES[name]
            elif isinstance(changed.func, ast.Name):
                changed.func.id = _NAMES[name]
            self._swap(node, changed)
        if name in _DROPPED and len(node.args) == 1 and not isinstance(node.args[0], ast.Starred):
            self._swap(node, node.args[0])
        if name in {"cast", "TypeVar", "ParamSpec", "NewType"}:
            return
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Use another operator; leave the statement out."""
        start, end = self._span(node.target)[1], self._span(node.value)[0]
        found = re.search(rb"\S+=", self.source[start:end])
        if found and found[0] in _AUGMENTED:
            other = _AUGMENTED[found[0]]
            span = (start + found.start(), start + found.end())
            text = ast.unparse(node)
            mutated = text.replace(found[0].decode(), other.decode(), 1)
            self._add(node, span, text, mutated, other.decode())
        self._leave_out(node)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        """Leave a call out; a docstring is no statement."""
        if isinstance(node.value, ast.Call):
            self._leave_out(node)
            self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        """Go on to what follows."""
        self._leave_out(node)

    def visit_Break(self, node: ast.Break) -> None:
        """Go on to what follows."""
        self._leave_out(node)

    def _leave_out(self, node: ast.stmt) -> None:
        self._add(node, self._span(node), ast.unparse(node), "pass", "pass")


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """Return every mutant of a file, in its order; each has a key of its own."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    seen: dict[str, int] = defaultdict(int)
    spans: dict[str, set[tuple[int, int]]] = defaultdict(set)
    numbered: list[Mutant] = []
    for mutant in finder.mutants:
        if mutant.span in spans[mutant.key]:
            continue  # two ways to the same change
        spans[mutant.key].add(mutant.span)
        numbered.append(replace(mutant, occurrence=seen[mutant.key]))
        seen[mutant.key] += 1
    return numbered


def all_mutants(root: Path, patterns: Iterable[str] | None = None) -> list[Mutant]:
    """Return the mutants of all central modules, or of files that match the patterns."""
    chosen = [p for each in GROUPS.values() for p in each] if patterns is None else list(patterns)
    files = sorted({path for pattern in chosen for path in root.glob(pattern)})
    return [
        mutant
        for file in files
        for mutant in mutants_of(file.relative_to(root).as_posix(), file.read_bytes())
    ]


def sample(mutants: list[Mutant], seed: int) -> Iterator[Mutant]:
    """Give mutants in a random order, at most one of a line: the first n are a sample of n."""
    drawn = list(mutants)
    random.Random(seed).shuffle(drawn)  # noqa: S311 - a sample, no secret
    lines: set[tuple[str, int]] = set()
    for mutant in drawn:
        line = (mutant.path, mutant.line)
        if line not in lines:
            lines.add(line)
            yield mutant


def control_of(mutant: Mutant) -> Mutant | None:
    """Return the same place written anew, without a change; None of statements."""
    if not mutant.code.endswith(")"):
        return None
    return replace(mutant, mutated="itself", code=f"({mutant.original})")


def equivalent(*, gone: bool = True) -> dict[str, str]:
    """Return why no test can tell a mutant from the program, by key; of lines `gone` since, too."""
    text = Path(__file__).with_name("equivalent.toml").read_text()
    return {
        mutant: each["proof"]
        for each in tomllib.loads(text).get("equivalent", ())
        for mutant in each["mutants"]
        if gone or not each.get("gone")
    }
