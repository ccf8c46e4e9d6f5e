"""Options as types, for those who check them. Written by tools/python/options.py from the library's list."""

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

    gen_length: int | None
    """Positions to decode: the canvas, which under full attention is an input of the answer."""
    max_tokens: int | None
    """Tokens that the answer may have at most. It sets the canvas of causal and block-causal models; under full
    attention the canvas has the recommended length if that is less, whatever this is."""
    block_length: int | None
    """Positions of a block."""
    steps: int | None
    """Denoising steps over all blocks."""
    remasking: str | None
    """Quantity that ranks predictions."""
    schedule: str | None
    """Rule by which steps share the masks."""
    eps: float | None
    """End of Dream's time."""
    temperature: float | None
    """Temperature of tokens; 0: the most probable one."""
    alg_temp: float | None
    """Temperature of the order of commits; 0: the best first."""
    top_p: float | None
    """Probability kept by top-p filtering."""
    top_k: int | None
    """Tokens kept by top-k filtering."""
    cfg_scale: float | None
    """Scale of classifier-free guidance; 0: none."""
    decoder: Union[str, Mapping[str, Any], None]
    """Decoder."""
    cache: Union[str, Mapping[str, Any], None]
    """Cache policy."""
    top_logprobs: int | None
    """Keep the log-probability of each committed token, and of so many of the most probable tokens beside it: 0 to
    20."""
    guide: str | None
    """The guide, by its name, of a model that has several."""
    stop: Union[str, Sequence[str], None]
    """Texts that end the answer; they are not part of it."""
    include_stop: bool | None
    """Keep the stop text that ended the answer at its end."""
    stop_token_ids: Union[int, Sequence[int], None]
    """Tokens that end the answer beside the model's own, even with `ignore_eos`; they are part of its tokens."""
    ignore_eos: bool | None
    """Decode all positions, whatever end tokens stand there, and keep them in the answer."""
    no_early_stop: bool | None
    """Go on behind an end token; the answer still ends there."""
    stop_rule: str | None
    """Rule for ending before everything is decoded; unset: once no mask stands before an end token."""
    suppress_eos: bool | None
    """Never predict the end-of-text token (LLaDA's `logits_eos_inf`)."""
    eos_confidence_zero: bool | None
    """Predict end tokens with confidence 0 (LLaDA's `confidence_eos_eot_inf`)."""
    deadline_ms: int | None
    """Milliseconds from its preparation on after which the answer ends, with what is settled, at the end of a
    forward; never if it is not set."""
    split_special: bool | None
    """Read control tokens from the chat template alone; `false`: from the text of messages too."""
    seed: int | None
    """Key of all randomness; 0 if it is not set."""
    transfer: Transfer | None
    """A transfer rule of one's own, in the place of `decoder`."""
