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
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Union

if TYPE_CHECKING:
    from ._transfer import Transfer

__all__ = ["LoadOptions", "Options", "ServiceOptions"]


class LoadOptions(TypedDict, total=False):
    """Keywords of `load` and `demo`. `None` means not set."""

    device: str | None
    """Device: `auto` (the processor), `cpu`, `cuda` or `cuda:N` (experimental)."""
    dtype: str | None
    """Element type of weights and products: `auto`, `f32` or `bf16`."""
    quantize: str | None
    """Quantisation of weights at load: `none`, `q8` or `q4`."""
    activations: str | None
    """Rounding of the inputs of products: `auto`, `plain` or `int8`."""
    threads: int | None
    """Threads that compute; 1 for each core by default."""
    guide: Union[str, os.PathLike[str], Mapping[str, str], None]
    """The guide of decoder `guided`, named as a model is, or several by the names that `guide` of a generation chooses by."""
    family: str | None
    """Family that the model's files are read as, where they do not tell: `NAME` or `NAME:shift=0|1,block=N|none,mask=ID`."""
    adapter: Union[str, os.PathLike[str], None]
    """Adapter (PEFT LoRA) beside the model: a directory, or `org/name` of a hub."""
    adapter_use: str | None
    """Rows that take the adapter: `auto`, `masks` (texts stay the model's own), `all`, or `merged` into the weights at load."""
    prefix_cache: int | None
    """MiB of K/V kept of prompts and finished answers, on each network; a quarter of the free memory by default, 0 for none."""


class ServiceOptions(TypedDict, total=False):
    """Options of a service beside its engine."""

    names: Sequence[str]
    """Names that requests may call the model by; the model's own by default."""
    keys: str | None
    """Clients, one a line: `NAME KEY [weight=NUMBER] [rate=REQUESTS_PER_MINUTE]`. Without any, requests need no key."""
    page: bool
    """Serves the page at `/`."""
    max_queue: int
    """Answers that are made or wait at the same time."""
    max_gen_length: int
    """Tokens that an answer may have at most."""
    max_body_bytes: int
    """Bytes of a body."""
    max_choices: int
    """Answers to a prompt."""
    max_prompts: int
    """Prompts of a request."""


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
    "tokens": "Union[int, Sequence[int], None]",
    "word": "str | None",
    "method": "Union[str, Mapping[str, Any], None]",
}

TAIL = '''    transfer: Transfer | None
    """A transfer rule of one's own, in the place of `decoder`."""
'''


def written(fields: list[dict[str, str]]) -> str:
    """Returns the file's text."""
    lines = [HEAD]
    for field in fields:
        lines.append(f"    {field['name']}: {TYPES[field['takes']]}\n")
        about = " ".join(field["about"].split()).replace("[`eos_confidence_zero`]", "`eos_confidence_zero`")
        wrapped = textwrap.wrap(f'"""{about}"""', 116, initial_indent="    ", subsequent_indent="    ")
        lines.append("\n".join(wrapped) + "\n")
    return "".join(lines) + TAIL


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
