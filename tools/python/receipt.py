"""Writes `python/demask/_receipt.py` from the structs that a receipt is written from.

    python tools/python/receipt.py [--check]

With --check, nothing is written, and the status is 1 if the file is another than what would be.
"""

from __future__ import annotations

import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILE = ROOT / "python/demask/_receipt.py"
SOURCES = (
    "crates/decode/src/constraint/mod.rs",
    "crates/decode/src/event.rs",
    "crates/decode/src/receipt.rs",
    "crates/demask/src/receipt.rs",
)
# The structs in the order in which the file needs them: a class is written before the one that names it.
STRUCTS = (
    "Source",
    "ConstraintCounts",
    "ConstraintReceipt",
    "Rounds",
    "Guided",
    "Seconds",
    "DeviceUse",
    "MemoryUse",
    "DecodingReceipt",
    "Receipt",
)
# What a type is in JSON.
TYPES = {"String": "str", "&'static str": "str", "usize": "int", "u64": "int", "f64": "float", "bool": "bool", "Options": "Options"}
# The one field whose JSON its type writes itself (`impl Serialize for Exactness`): its names, and what each holds.
CLAIM = (
    ("exactness", "str", "Claim about the tokens: `reference`, `lossless` or `approximate`."),
    ("against", "str | None", "The run that a lossless result equals."),
)

HEAD = '''"""Receipts as types, for those who check them. Written by tools/python/receipt.py from the library's structs."""

from __future__ import annotations

from typing import TypedDict

from ._options import Options

__all__ = [
{names}
]
'''

STRUCT = re.compile(r"((?:^///[^\n]*\n)+)(?:^#\[[^\n]*\n)*^pub struct (\w+) \{\n(.*?)^\}", re.DOTALL | re.MULTILINE)
FIELD = re.compile(r"((?:    ///[^\n]*\n)+)((?:    #\[[^\n]*\n)*)    pub (\w+): ([^\n]+),\n")

Field = tuple[str, str, str]


def joined(comment: str) -> str:
    """Returns the text of a comment, without links to Rust's names."""
    text = " ".join(line.strip().removeprefix("///").strip() for line in comment.splitlines())
    return re.sub(r"\s*\(see\s+\[[^)]*\)\)", "", text)


def kind(of: str) -> str:
    """Returns what a type is in Python."""
    inner = re.fullmatch(r"(Option|Vec)<(.*)>", of)
    if inner:
        return kind(inner[2]) if inner[1] == "Option" else f"list[{kind(inner[2])}]"
    if of in TYPES:
        return TYPES[of]
    if of in STRUCTS:
        return of
    sys.exit(f"a receipt has a field of type {of}, which tools/python/receipt.py does not know")


def members(body: str) -> tuple[list[str], list[Field], list[Field]]:
    """Returns the structs that are written into this one, the fields that are always there, and those that may be absent."""
    parts: list[str] = []
    always: list[Field] = []
    maybe: list[Field] = []
    for comment, attributes, name, of in FIELD.findall(body):
        if "flatten" in attributes:
            if of == "Exactness":
                always += CLAIM
            else:
                parts.append(of.split("::")[-1])
            continue
        (maybe if "skip_serializing_if" in attributes else always).append((name, kind(of), joined(comment)))
    return parts, always, maybe


def documented(about: str) -> list[str]:
    """Returns the lines of a docstring."""
    return textwrap.wrap(f'"""{about}"""', 116, initial_indent="    ", subsequent_indent="    ")


def lines(fields: list[Field]) -> str:
    """Returns the fields of a TypedDict."""
    text = ""
    for name, of, about in fields:
        text += f"    {name}: {of}\n" + "\n".join(documented(about)) + "\n"
    return text


def classes(name: str, about: str, body: str) -> str:
    """Returns the classes of a struct: fields that may be absent need one of their own before Python 3.11."""
    parts, always, maybe = members(body)
    base = ", ".join(parts) or "TypedDict"
    told = "\n".join(documented(about)) + "\n\n"
    if not maybe:
        return f"\n\nclass {name}({base}):\n{told}{lines(always)}"
    first = f'\n\nclass _{name}({base}):\n    """What is always there."""\n\n{lines(always)}'
    return f"{first}\n\nclass {name}(_{name}, total=False):\n{told}{lines(maybe)}"


def written() -> str:
    """Returns the file's text."""
    found = {}
    for source in SOURCES:
        for comment, name, body in STRUCT.findall((ROOT / source).read_text(encoding="utf-8")):
            found[name] = (joined(comment), body)
    missing = [name for name in STRUCTS if name not in found]
    if missing:
        sys.exit(f"{' and '.join(SOURCES)} have no struct {', '.join(missing)}")
    names = "\n".join(f'    "{name}",' for name in sorted(STRUCTS))
    return HEAD.format(names=names) + "".join(classes(name, *found[name]) for name in STRUCTS)


def main() -> int:
    """Writes or compares."""
    text = written()
    if "--check" in sys.argv[1:]:
        same = FILE.read_text(encoding="utf-8") == text
        if not same:
            print(f"{FILE} is not what the library's receipts are: python tools/python/receipt.py", file=sys.stderr)
        return 0 if same else 1
    FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
