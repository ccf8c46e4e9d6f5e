"""Writes `python/demask/_options.py` from the options that the library knows, through an installed package.

    python tools/python/options.py [--check]

With --check, nothing is written, and the status is 1 if the file is another than what would be.
"""

from __future__ import annotations

import json
import pathlib
import sys
import textwrap

FILE = pathlib.Path(__file__).resolve().parents[2] / "python/demask/_options.py"

HEAD = '''"""Options as types, for those who check them. Written by tools/python/options.py from the library's list."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Union

if TYPE_CHECKING:
    from ._transfer import Transfer

__all__ = ["LoadOptions", "Options", "PromptOptions", "RequestBounds", "ServiceOptions"]

'''

LOAD = '''
class LoadOptions(TypedDict, total=False):
    """Keywords of `load` and `demo`. `None` means not set."""

'''

BOUNDS = '''

class RequestBounds(TypedDict, total=False):
    """Bounds of what requests of a service may ask."""

'''

SERVICE = '''

class ServiceOptions(RequestBounds, total=False):
    """Options of a service beside its model."""

    names: Sequence[str]
    """Names that requests may call the model by; the model's own by default."""
    keys: str | None
    """Clients, one a line: `NAME KEY [weight=NUMBER] [rate=REQUESTS_PER_MINUTE]`. Without any, requests need no key."""
    page: bool
    """Serves the page at `/`."""


class Options(TypedDict, total=False):
    """Options of an answer: the command line's options with underscores. What is `None` or not there is chosen to fit the
    model.
    """

'''

TYPES = {
    "count": "int | None",
    "number": "float | None",
    "switch": "bool | None",
    "text": "str | None",
    "texts": "Union[str, Sequence[str], None]",
    # A model of pydantic is a class.
    "document": "Union[Mapping[str, Any], type, str, bool, None]",
    "tokens": "Union[int, Sequence[int], None]",
    "biases": "Union[Mapping[int, float], Mapping[str, float], None]",
    "word": "str | None",
    "method": "Union[str, Mapping[str, Any], None]",
    "path": "Union[str, os.PathLike[str], None]",
    "models": "Union[str, os.PathLike[str], Mapping[str, Any], None]",
}

# Texts of the library that Python's paths are as well.
PATHS = ("adapter",)

TAIL = '''    transfer: Transfer | type[Transfer] | Callable[[], Transfer] | None
    """A transfer rule of one's own, in the place of `decoder`: a class or a function makes one for each request."""


class PromptOptions(Options, total=False):
    """Options of an answer to a prompt, and what comes before the prompt."""

    system: str | None
    """System message before a prompt that is a text."""
'''


def lines(fields: list[dict[str, str]]) -> str:
    """Returns the fields of a TypedDict."""
    text = ""
    for field in fields:
        takes = "path" if field["name"] in PATHS else field["takes"]
        about = " ".join(field["about"].split())
        about += f" Default: {field['default']}." if field["default"] else ""
        wrapped = textwrap.wrap(f'"""{about}"""', 116, initial_indent="    ", subsequent_indent="    ")
        text += f"    {field['name']}: {TYPES[takes]}\n" + "\n".join(wrapped) + "\n"
    return text


def written(declared: dict[str, list[dict[str, str]]]) -> str:
    """Returns the file's text."""
    load = [field for field in declared["load"] if field["name"] != "model"]
    parts = (HEAD, LOAD, lines(load), BOUNDS, lines(declared["bounds"]), SERVICE, lines(declared["answer"]), TAIL)
    return "".join(parts)


def main() -> int:
    """Writes or compares."""
    from demask import _native

    text = written(json.loads(_native.option_fields()))
    if "--check" in sys.argv[1:]:
        same = FILE.read_text(encoding="utf-8") == text
        if not same:
            print(f"{FILE} is not what the library's options are: python tools/python/options.py", file=sys.stderr)
        return 0 if same else 1
    FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
