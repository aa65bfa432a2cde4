"""What a function reads from outside its locals, found in its bytecode.

The code is scanned for chains `root.a.b`, the root being a global, a closure cell, an imported module,
`self` or a static argument. Strings count as attribute names where the code uses `getattr` or the like.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from ..core.source import Location

__all__ = ["Chain", "Reads", "scan"]


@dataclass(frozen=True, slots=True)
class Chain:
    """A read `root.a.b`. `escapes`: the value at its end goes somewhere we do not follow."""

    kind: str  # "global", "deref", "local" or "import"
    root: str
    attrs: tuple[str, ...]
    escapes: bool
    where: Location


@dataclass(slots=True)
class Reads:
    """What one code object, without those nested in it, reads and writes outside its locals."""

    chains: list[Chain] = field(default_factory=list)
    stores: list[Chain] = field(default_factory=list)  # attrs end in the attribute that is written
    names: set[str] = field(default_factory=set)  # attribute names, and names that getattr may be given
    everything: bool = False  # the code uses vars() or the like


_DEREF = {"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_ATTR = {"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"}
_STORE = {"STORE_GLOBAL": "global", "STORE_DEREF": "deref"}
_BY_NAME = {"getattr", "hasattr", "setattr", "attrgetter", "methodcaller"}


def scan(code: types.CodeType, roots: Collection[str]) -> Reads:
    """Find the chains of one code object. `roots` are the locals to follow: `self`, and arguments that are static."""
    reads = Reads()
    current: Chain | None = None
    copied: Chain | None = None
    consts: list[Any] = [0, None]
    by_name = False

    def start(kind: str, root: str, instruction: dis.Instruction) -> Chain:
        p = instruction.positions
        line = (p and p.lineno) or code.co_firstlineno
        end = (p and p.end_lineno) or line
        col, end_col = (p.col_offset, p.end_col_offset) if p else (None, None)
        return Chain(kind, root, (), True, Location(code.co_filename, line, end, col, end_col, code.co_name))

    def more(chain: Chain, attr: str, escapes: bool = True) -> Chain:
        return replace(chain, attrs=(*chain.attrs, attr), escapes=escapes)

    def passing(chain: Chain) -> Chain:
        return replace(chain, escapes=False)

    for instruction in dis.get_instructions(code):
        op, arg = instruction.opname, instruction.argval
        if op in ("EXTENDED_ARG", "CACHE", "PUSH_NULL"):
            continue
        if op in _ATTR:
            reads.names.add(arg)
            by_name |= arg in _BY_NAME
            if current is not None:
                current = more(current, arg)
            continue
        if op == "IMPORT_FROM" and current is not None:
            reads.chains.append(more(current, arg))  # the module stays on the stack
            by_name |= arg in _BY_NAME
            continue
        if op in ("STORE_ATTR", "DELETE_ATTR"):
            target = current or copied
            if target is not None:
                reads.stores.append(more(target, arg, False))
            if current is not None:
                reads.chains.append(passing(current))
            current = copied = None
            continue
        if op == "COPY" and current is not None:  # the first half of `self.n += 1`
            reads.chains.append(passing(current))
            copied = current
            continue
        if current is not None:
            reads.chains.append(current)
            current = None
        if op in _GLOBAL:
            current = start("global", arg, instruction)
            by_name |= arg in _BY_NAME
            reads.everything |= arg in ("vars", "dir")
        elif op in _DEREF:
            current = start("deref", arg, instruction)
        elif op == "IMPORT_NAME":
            level = consts[0] if isinstance(consts[0], int) else 0
            # `import a.b` binds a, `from a.b import c` reads from a.b.
            name = arg if consts[1] or level else arg.partition(".")[0]
            current = start("import", "." * level + name, instruction)
        elif op in _STORE:
            reads.stores.append(start(_STORE[op], arg, instruction))
        elif op.startswith("LOAD_FAST"):
            loaded = arg[-1] if isinstance(arg, tuple) else arg
            if loaded in roots:
                current = start("local", loaded, instruction)
        elif op == "MATCH_CLASS":
            by_name = True
        elif op in ("LOAD_CONST", "LOAD_SMALL_INT"):
            consts = [consts[-1], arg]
    if current is not None:
        reads.chains.append(current)
    reads.everything |= "__dict__" in reads.names
    if by_name:
        reads.names |= _identifiers(code.co_consts)
    return reads


def _identifiers(consts: Any) -> set[str]:
    """Strings among the constants that can be attribute names."""
    found: set[str] = set()
    for const in consts:
        if isinstance(const, str) and const.isidentifier():
            found.add(const)
        elif isinstance(const, (tuple, frozenset)):
            found |= _identifiers(const)
    return found
