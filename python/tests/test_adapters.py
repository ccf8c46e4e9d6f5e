"""Adapters beside a model: the base model's own text in fewer forwards."""

from pathlib import Path

import demask
import pytest

CHECKPOINTS = Path(__file__).parents[2] / "golden" / "ckpt"
BASE = CHECKPOINTS / "idlm-base-toy"
ADAPTER = CHECKPOINTS / "idlm-base-toy-lora"
FAMILY = "qwen3:mask=93"


def test_an_adapter_of_masks_leaves_the_text() -> None:
    prompt = demask.Tokens([3, 4, 5, 6, 7])
    base = demask.load(BASE, family=FAMILY).generate(prompt, max_tokens=24, ignore_eos=True)
    with_adapter = demask.load(BASE, family=FAMILY, adapter=ADAPTER, adapter_use="masks")
    found = with_adapter.generate(prompt, max_tokens=24, ignore_eos=True)
    assert with_adapter.name == "idlm-base-toy+idlm-base-toy-lora"
    assert found.tokens == base.tokens
    assert found.receipt["forwards"] < base.receipt["forwards"]


def test_a_use_needs_an_adapter_and_a_name() -> None:
    with pytest.raises(demask.errors.OptionsError, match="none is named: give `adapter`"):
        demask.load(BASE, adapter_use="all")
    with pytest.raises(demask.errors.OptionsError, match="expected auto, masks, all or merged"):
        demask.load(BASE, family=FAMILY, adapter=ADAPTER, adapter_use="most")
