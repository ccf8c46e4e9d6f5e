"""The types that the package ships are those of its code: what of that shows without building it anew."""

from __future__ import annotations

import ast
import importlib.resources
import inspect
from typing import Any

import demask
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


def test_everything_public_is_documented_and_typed() -> None:
    assert (importlib.resources.files("demask") / "py.typed").is_file()
    for name in demask.__all__:
        of = getattr(demask, name)
        if not inspect.isclass(of) or of.__module__ != f"demask.{of.__module__.split('.')[-1]}":
            continue
        for member, value in vars(of).items():
            if not member.startswith("_") and inspect.isfunction(value):
                assert (value.__doc__ or "").strip(), f"{name}.{member}"
                hints = set(value.__annotations__)
                assert "return" in hints, f"{name}.{member}"
