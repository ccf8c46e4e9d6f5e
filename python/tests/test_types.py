"""The types that the package ships are those of its code: what of that shows without building it anew."""

from __future__ import annotations

import ast
import importlib.resources
import inspect
import json
import typing
from typing import Any

import demask
import pytest
from conftest import QUESTION, ROOT
from demask import _native


def stub() -> ast.Module:
    """Returns the stub of the native half."""
    return ast.parse((importlib.resources.files("demask") / "_native.pyi").read_text())


def parameters(function: ast.FunctionDef) -> list[str]:
    """Returns the names of a function's parameters."""
    given = function.args
    names = [one.arg for one in [*given.posonlyargs, *given.args, *given.kwonlyargs]]
    return [name for name in names if name not in ("self", "cls")]


def told(function: Any) -> list[str]:
    """Returns the names of a function's parameters, as `inspect` reads them."""
    return [name for name in inspect.signature(function).parameters if name != "self"]


def test_the_native_half_has_what_its_stub_says_and_no_more() -> None:
    written = stub().body
    classes = {one.name: one for one in written if isinstance(one, ast.ClassDef)}
    functions = {one.name: one for one in written if isinstance(one, ast.FunctionDef)}
    public = {name for name in dir(_native) if not name.startswith("_")}
    assert public == classes.keys() | functions.keys()
    for name, function in functions.items():
        assert told(getattr(_native, name)) == parameters(function), name
    for name, of in classes.items():
        kind = getattr(_native, name)
        methods = {one.name: one for one in of.body if isinstance(one, ast.FunctionDef)}
        shown = {one for one in vars(kind) if not one.startswith("_")}
        assert shown == {one for one in methods if not one.startswith("_")}, name
        for method in shown:
            if callable(getattr(kind, method)):
                assert told(getattr(kind, method)) == parameters(methods[method]), f"{name}.{method}"


PUBLIC = (demask, demask.errors, demask.lab, demask.types, demask.vllm)


def test_everything_public_is_documented_and_typed() -> None:
    assert (importlib.resources.files("demask") / "py.typed").is_file()
    classes = {getattr(module, name) for module in PUBLIC for name in module.__all__ if inspect.isclass(getattr(module, name))}
    assert {demask.Model, demask.Generation, demask.types.Stream, demask.errors.PromptError} <= classes
    for of in classes:
        assert (of.__doc__ or "").strip(), of
        for member, value in vars(of).items():
            if not member.startswith("_") and inspect.isfunction(value):
                assert (value.__doc__ or "").strip(), f"{of}.{member}"
                assert "return" in value.__annotations__, f"{of}.{member}"


def test_a_user_finds_about_20_names_and_the_rest_in_modules() -> None:
    assert len(demask.__all__) <= 20
    # Modules are not listed: `from demask import *` is to leave the standard library's `types` alone.
    shown = {name for name in vars(demask) if not name.startswith("_")} - {"annotations"}
    assert shown == {*demask.__all__, "errors", "lab", "types", "vllm"}


def test_no_default_of_the_library_is_written_again() -> None:
    # What a keyword is unless it is set, the declared settings say.
    for method in ("serve", "service", "score", "decide"):
        given = inspect.signature(getattr(demask.Model, method)).parameters.values()
        numbers = [one for one in given if isinstance(one.default, (int, float)) and not isinstance(one.default, bool)]
        assert not numbers, f"{method}: {numbers}"
    declared = json.loads(_native.option_fields())
    bounds = {field["name"]: field["default"] for field in declared["bounds"]}
    assert bounds.keys() == demask.types.RequestBounds.__annotations__.keys()
    usual = {field["name"]: field["default"] for field in declared["service"]}
    with demask.demo() as model, model.serve(port=0) as server:
        assert server.url.startswith(f"http://{usual['host']}:")


def shape(value: Any, of: Any, where: str) -> None:
    """Refuses a value of JSON that is not of a type."""
    if typing.is_typeddict(of):
        hints = typing.get_type_hints(of, localns={"Transfer": demask.Transfer})
        assert isinstance(value, dict) and of.__required_keys__ <= value.keys() <= hints.keys(), (where, value)
        for name, inner in value.items():
            shape(inner, hints[name], f"{where}.{name}")
    elif typing.get_origin(of) is list:
        assert isinstance(value, list), where
        for inner in value:
            shape(inner, typing.get_args(of)[0], where)
    elif typing.get_args(of):
        kinds = typing.get_args(of)
        kinds = tuple(typing.get_origin(kind) or kind for kind in kinds)
        assert isinstance(value, (*kinds, int) if float in kinds else kinds), (where, value)
    else:
        assert type(value) in ((int, float) if of is float else (of,)), (where, value)


RUNS: list[tuple[str, dict[str, Any]]] = [
    ("demo-llada", {"decoder": "static", "cache": "none"}),
    ("demo-llada", {"decoder": "freedave:d=4", "cache": "dual"}),
    ("demo-llada", {"ignore_eos": True, "max_tokens": 5, "gen_length": 64}),
    ("demo-llada", {"gen_length": 512, "block_length": 512, "decoder": "static", "cache": "none", "ignore_eos": True, "deadline_ms": 20}),
    ("demo-sdar", {}),
    ("demo-qwen", {}),
]


@pytest.mark.parametrize(("name", "options"), RUNS)
def test_receipts_are_what_their_type_says(name: str, options: dict[str, Any]) -> None:
    with demask.load(ROOT / "demo" / name, threads=1) as model:
        for answer in (model.generate(QUESTION, **options), model.generate(QUESTION, **options)):
            shape(answer.receipt, demask.types.Receipt, "receipt")


def test_a_guides_counts_are_what_their_type_says() -> None:
    with demask.load(ROOT / "demo/demo-llada", guide=ROOT / "demo/demo-qwen", threads=1) as model:
        receipt = model.generate(QUESTION, decoder="guided").receipt
    shape(receipt, demask.types.Receipt, "receipt")
    assert receipt["guide"]["model"] == "demo-qwen"
