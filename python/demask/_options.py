"""Options as types, for those who check them. Written by tools/python/options.py from the library's list."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Union

if TYPE_CHECKING:
    from ._transfer import Transfer

__all__ = ["LoadOptions", "Options", "PromptOptions", "RequestBounds", "ServiceOptions"]


class LoadOptions(TypedDict, total=False):
    """Keywords of `load` and `demo`. `None` means not set."""

    family: str | None
    """Family that the model's files are read as, where they do not tell: `NAME` or
    `NAME:shift=0|1,block=N|none,mask=ID`."""
    adapter: Union[str, os.PathLike[str], None]
    """Adapter (PEFT LoRA) beside the model: a directory, or org/name of a hub."""
    adapter_use: str | None
    """Rows that take the adapter: `auto`, `masks` (texts stay the model's own), `all`, or `merged` into the weights
    at load."""
    device: str | None
    """Device: `auto` (the processor), `cpu`, `cuda`, `cuda:N` (experimental)."""
    dtype: str | None
    """Numbers of weights and products: `auto`, `f32`, `bf16`."""
    quantize: str | None
    """Quantisation of weights at load: `none`, `q8`, `q4`."""
    activations: str | None
    """Inputs of products: `auto`, `plain` (as `dtype` says), `int8` (quantised weights)."""
    threads: int | None
    """Threads. Default: one for each fast core."""
    guide: Union[str, os.PathLike[str], Mapping[str, Any], None]
    """Autoregressive model that decoder `guided` lets judge drafts; of several, requests choose one by its name."""
    prefix_cache: int | None
    """MiB of K/V that are kept of prompts and finished answers, on each network, for requests that begin with the
    same tokens; 0: none. Only models with causal or block-causal attention have any. Default: a quarter of the free
    memory."""


class RequestBounds(TypedDict, total=False):
    """Bounds of what requests of a service may ask."""

    max_gen_length: int | None
    """Tokens that an answer may have at most. Default: 4096."""
    max_queue: int | None
    """Answers that are made or wait at the same time; beyond that requests are refused with 503. Default: 256."""
    max_body_bytes: int | None
    """Bytes of a request's body. Default: 2097152."""
    max_choices: int | None
    """Answers to a prompt (n). Default: 16."""
    max_prompts: int | None
    """Prompts of a request. Default: 64."""


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

    gen_length: int | None
    """Positions to decode: the canvas, which under full attention is an input of the answer. Default: the
    model's."""
    max_tokens: int | None
    """Tokens that the answer may have at most."""
    block_length: int | None
    """Positions of a block. Default: the model's."""
    steps: int | None
    """Denoising steps over all blocks. Default: one for each token."""
    remasking: str | None
    """Ranking of predictions: `low_confidence`, `random`, `margin`, `entropy`, `left_to_right`, ... Default: the
    model's."""
    schedule: str | None
    """Rule by which steps share the masks: `even`, `dream`, `dream_total`, `linear`, `rnd1`. Default: the
    model's."""
    eps: float | None
    """End of the time of schedule `dream`. Default: 0.001."""
    temperature: float | None
    """Temperature of tokens; 0: the most probable one. Default: mostly 0."""
    alg_temp: float | None
    """Temperature of the order of commits; 0: the best first. Default: 0."""
    top_p: float | None
    """Probability kept by top-p filtering. Default: 1, all."""
    top_k: int | None
    """Tokens kept by top-k filtering. Default: 0, all."""
    min_p: float | None
    """Keep tokens that are at least this share as probable as the best one, at the temperature. Default: 0, all."""
    logit_bias: Union[Mapping[int, float], Mapping[str, float], None]
    """Numbers from -100 to 100 that are added to the logits of tokens."""
    presence_penalty: float | None
    """Number that is subtracted from the logit of each token that the answer has so far, from -2 to 2. Default:
    0."""
    frequency_penalty: float | None
    """The same, once for each time that the answer has the token so far. Default: 0."""
    repetition_penalty: float | None
    """Number that the logit of each token of the prompt and of the answer so far is divided by, or multiplied with
    if it is below 0. Default: 1."""
    min_tokens: int | None
    """Tokens that the answer has before it may end."""
    bad_words: Union[str, Sequence[str], None]
    """Texts that the answer has nowhere, not in a longer word either."""
    cfg_scale: float | None
    """Scale of classifier-free guidance; 0: none. Default: 0."""
    decoder: Union[str, Mapping[str, Any], None]
    """Decoder, as `name` or `name:key=value,key=value`. Default: the model's."""
    cache: Union[str, Mapping[str, Any], None]
    """Cache policy, as `name` or `name:key=value,key=value`. Default: the model's."""
    top_logprobs: int | None
    """Most probable tokens whose log-probabilities are kept beside each committed token's own: 0 to 20."""
    guide: str | None
    """The guide, by its name, of a model that has several."""
    stop: Union[str, Sequence[str], None]
    """Texts that end the answer; they are not part of it."""
    include_stop: bool | None
    """Keep the stop text that ended the answer at its end."""
    stop_token_ids: Union[int, Sequence[int], None]
    """Tokens that end the answer beside the model's own, even with `ignore_eos`; they are part of its tokens."""
    ignore_eos: bool | None
    """Decode all positions, whatever end tokens they hold, and keep them in the answer."""
    no_early_stop: bool | None
    """Go on after an end token; the answer still ends there."""
    stop_rule: str | None
    """Rule for an early end: `prefix`, `prefix-fill`, `block`, `whole-block`, `fill`, `end-run:run=N`, `never`.
    Default: prefix."""
    suppress_eos: bool | None
    """Never predict the end-of-text token (LLaDA's `logits_eos_inf`)."""
    eos_confidence_zero: bool | None
    """Predict end tokens with confidence 0 (LLaDA's `confidence_eos_eot_inf`)."""
    deadline_ms: int | None
    """Milliseconds after its preparation when the answer ends with its settled tokens, at the end of a forward.
    Default: never."""
    split_special: bool | None
    """Read control tokens from the chat template alone; `false`: from the text of messages too. Default: true."""
    regex: str | None
    """Regular expression that the whole answer matches."""
    choice: Union[str, Sequence[str], None]
    """Texts of which the answer is one."""
    json_schema: Union[Mapping[str, Any], type, str, bool, None]
    """JSON schema (draft 2020-12) under which the answer is valid JSON; the name of a file, or the schema."""
    json_object: bool | None
    """The answer is a JSON object."""
    json_space: str | None
    """Space in JSON: `compact`, `spaced`, `pretty`. Default: spaced."""
    constraint_before: str | None
    """Text that the answer has before the constrained text."""
    constraint_behind: str | None
    """Text that the answer has after the constrained text."""
    constraint_after: str | None
    """Mark before the constrained text, which follows free text: `</think>`."""
    constraint_confidence: str | None
    """Confidence under a constraint: `raw` among all tokens, `allowed` among those that fit. Default: raw."""
    constraint_forced: str | None
    """Commits that a constraint forces: `tokens` that every answer has, or `text`, in the tokenizer's own tokens.
    Default: tokens."""
    deadline: str | None
    """Answer under a constraint when `deadline_ms` are over: `settled`, the part that is; `complete`, filled with
    what fits best of the last predictions. Default: settled."""
    seed: int | None
    """Key of all randomness. Default: 0, in Python drawn where a temperature is above 0."""
    transfer: Transfer | type[Transfer] | Callable[[], Transfer] | None
    """A transfer rule of one's own, in the place of `decoder`: a class or a function makes one for each request."""


class PromptOptions(Options, total=False):
    """Options of an answer to a prompt, and what comes before the prompt."""

    system: str | None
    """System message before a prompt that is a text."""
