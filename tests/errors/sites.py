"""Where the source raises errors for users, and which of these places a message came from.

A site is a call that makes an error with a text of its own: of a subclass of `AstraiError`, of a `Problem` of a
configuration, or of a function that takes the text (`what`) and makes the error with it. A site counts as reached when
it stands on the stack at the making of an error whose text the user then read; an error that is caught on the way and
told in other words does not count.
"""

import ast
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from astrai_data.config.problems import Problem
from astrai_data.errors import AstraiError

ROOT = Path(__file__).parents[2]
PACKAGES = ("astrai_data", "astrai_train", "astrai_serve", "kernels")


@dataclass(frozen=True)
class Site:
    """A call: `path` below the repository, first and last line, and the text as the source has it."""

    path: str
    first: int
    last: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


@dataclass(frozen=True)
class Made:
    """An error or a problem that was made, and the lines (path, number) on the stack at that moment."""

    thing: AstraiError | Problem
    lines: frozenset[tuple[str, int]]


@contextmanager
def noted() -> Iterator[list[Made]]:
    """Note every error that is made inside the block, in any thread."""
    found: list[Made] = []
    makers = {kind: kind.__init__ for kind in (AstraiError, Problem)}

    def noting(original):
        def init(self, *arguments, **keywords):
            original(self, *arguments, **keywords)
            found.append(Made(self, frozenset(_stack())))

        return init

    for kind, original in makers.items():
        kind.__init__ = noting(original)
    try:
        yield found
    finally:
        for kind, original in makers.items():
            kind.__init__ = original


def _stack() -> Iterator[tuple[str, int]]:
    frame = sys._getframe(2)
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


def reached(made: list[Made], message: str, sites: list[Site]) -> set[Site]:
    """The sites of what was made and then read in `message`."""
    lines = {line for one in made if str(one.thing.what) in message for line in one.lines}
    return {site for site in sites if any((str(ROOT / site.path), n) in lines for n in _lines(site))}


def _lines(site: Site) -> range:
    return range(site.first, site.last + 1)


def find_sites() -> list[Site]:
    """Every site of the source."""
    trees = {path: ast.parse(path.read_bytes()) for path in _sources()}
    kinds = _error_classes(trees.values())
    makers = _makers(trees, kinds)
    return [site for path, tree in trees.items() for site in _sites_in(path, tree, makers)]


def _sources() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))] + [ROOT / "astrai.py"]


def _error_classes(trees) -> set[str]:
    bases = {
        node.name: {_name(base) for base in node.bases}
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    kinds = {"AstraiError"}
    while more := {name for name, above in bases.items() if above & kinds} - kinds:
        kinds |= more
    return kinds | {"Problem"}


Makers = dict[tuple[str, Path | None], tuple[int, str, str | None]]
"""(name, file; None: any) -> (place of `what` among the arguments, its name, its default)."""


def _makers(trees: dict[Path, ast.Module], kinds: set[str]) -> Makers:
    """Error classes, and the functions that hand their parameter on as the text of one."""
    makers: Makers = {(kind, None): (1 if kind == "Problem" else 0, "what", None) for kind in kinds}
    while True:
        more = {key: how for path, tree in trees.items() for key, how in _handing_on(path, tree, makers)}
        if more.keys() <= makers.keys():
            return makers
        makers |= more


def _handing_on(path: Path, tree: ast.Module, makers: Makers) -> Iterator:
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name[:2] != "__"):
        names = [argument.arg for argument in function.args.args if argument.arg != "self"]
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            text = _text(call, path, makers)
            if isinstance(text, ast.Name) and (text.id in names or text.id in _keywords(function)):
                place = names.index(text.id) if text.id in names else len(names)
                default = _keywords(function).get(text.id)
                yield (function.name, path if function.name[0] == "_" else None), (place, text.id, default)


def _keywords(function: ast.FunctionDef) -> dict[str, str | None]:
    pairs = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return {name.arg: getattr(default, "value", None) for name, default in pairs}


def _sites_in(path: Path, tree: ast.Module, makers: Makers) -> Iterator[Site]:
    for function, call in _calls(tree):
        text = _text(call, path, makers)
        names = {argument.arg for argument in [*function.args.args, *function.args.kwonlyargs]} if function else set()
        if text is None or (isinstance(text, ast.Name) and text.id in names):
            continue
        name = str(path.relative_to(ROOT))
        yield Site(name, call.lineno, call.end_lineno, _words(_looked_up(text, call, function, tree)))


def _calls(node: ast.AST, function: ast.FunctionDef | None = None) -> Iterator[tuple[ast.FunctionDef | None, ast.Call]]:
    """Every call with the function that it stands in."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield function, child
        yield from _calls(child, child if isinstance(child, ast.FunctionDef) else function)


def _looked_up(text: ast.expr, call: ast.Call, function: ast.FunctionDef | None, tree: ast.Module) -> ast.expr:
    """What a name that stands for the text was given last before the call, in the function or in the file."""
    if not isinstance(text, ast.Name):
        return text
    found = text
    for scope in (tree.body, list(ast.walk(function)) if function else []):
        for node in (node for node in scope if isinstance(node, ast.Assign) and node.lineno <= call.lineno):
            for target in node.targets:
                pairs = zip(target.elts, node.value.elts, strict=True) if _is_pair(target, node) else ()
                named = {one.id: value for one, value in pairs if isinstance(one, ast.Name)}
                named |= {target.id: node.value} if isinstance(target, ast.Name) else {}
                found = named.get(text.id, found)
    return found


def _is_pair(target: ast.expr, node: ast.Assign) -> bool:
    return isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)


def _text(call: ast.Call, path: Path, makers: Makers) -> ast.expr | None:
    """The argument that becomes the first line of the message; None if the call makes no error."""
    name = _name(call.func)
    how = makers.get((name, path)) or makers.get((name, None))
    if how is None:
        return None
    place, keyword, default = how
    given = {one.arg: one.value for one in call.keywords}
    if keyword in given:
        return given[keyword]
    if place < len(call.args):
        return call.args[place]
    return ast.Constant(default) if default else None


def _words(text: ast.expr) -> str:
    return text.value if isinstance(text, ast.Constant) else ast.unparse(text)


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
