"""The shape of vLLM's offline interface, for programs that come from there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union, cast

from ._model import demo, load
from ._generation import Generation, Logprob
from ._options import Options
from ._prompt import Message, Raw, Tokens

__all__ = ["LLM", "CompletionOutput", "RequestOutput", "SamplingParams"]


@dataclass
class SamplingParams:
    """Options of answers, under vLLM's names. `diffusion` has demask's own options: decoder, cache, steps and others.

    Names of vLLM's that have no meaning here, and values that this package cannot honour, are refused by name.
    """

    n: int = 1
    """Answers to each prompt, with seeds one behind the other."""
    temperature: float = 0.0
    """Temperature of tokens; 0 takes the most probable one. (vLLM's default is 1.)"""
    top_p: float | None = None
    top_k: int | None = None
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] | None = None
    min_tokens: int = 0
    bad_words: list[str] | None = None
    """Texts that the answer has nowhere, not in a longer word either. (vLLM's are tokens.)"""
    seed: int | None = None
    stop: Union[str, list[str], None] = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    max_tokens: int | None = None
    """Tokens that an answer may have at most. Under full attention `diffusion["gen_length"]` sets the canvas, else the length that
    is recommended for the model if that is less."""
    logprobs: int | None = None
    """Log-probabilities of committed tokens, and of so many others in their places."""
    diffusion: Options = field(default_factory=lambda: Options())

    def __post_init__(self) -> None:
        """Refuses what cannot be."""
        if self.n < 1:
            raise ValueError(f"n is {self.n}, expected at least 1")

    def options(self, choice: int = 0) -> Options:
        """Returns the same as options of `Model.generate`, for one of the answers."""
        stop = [self.stop] if isinstance(self.stop, str) else self.stop
        found: dict[str, Any] = {
            "temperature": self.temperature,
            "top_p": None if self.top_p == 1.0 else self.top_p,
            "top_k": self.top_k if self.top_k is not None and self.top_k > 0 else None,
            "min_p": self.min_p or None,
            "presence_penalty": self.presence_penalty or None,
            "frequency_penalty": self.frequency_penalty or None,
            "repetition_penalty": None if self.repetition_penalty == 1.0 else self.repetition_penalty,
            "logit_bias": self.logit_bias or None,
            "min_tokens": self.min_tokens or None,
            "bad_words": self.bad_words or None,
            "seed": None if self.seed is None else self.seed + choice,
            "stop": stop or None,
            "stop_token_ids": self.stop_token_ids,
            "include_stop": (self.include_stop_str_in_output and bool(stop)) or None,
            "ignore_eos": self.ignore_eos or None,
            "max_tokens": self.max_tokens,
            "top_logprobs": self.logprobs,
        }
        named = {name: value for name, value in found.items() if value is not None}
        return cast("Options", named | dict(self.diffusion))


@dataclass
class CompletionOutput:
    """Answer to a prompt."""

    index: int
    text: str
    token_ids: list[int]
    finish_reason: str | None
    """`stop` for an end token or a stop text, `length` for everything else."""
    stop_reason: Union[int, str, None]
    """The stop text or the stop token that ended it."""
    logprobs: list[Logprob] | None
    generation: Generation
    """The answer as demask has it, with its receipt."""


@dataclass
class RequestOutput:
    """A prompt and its answers."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool = True


class LLM:
    """`LLM(model).generate(prompts, SamplingParams(...))` as in vLLM. Prompts are continued as they are, without a template, and
    `chat` puts conversations through the model's template.

    `model` is what `load` takes, or `"demo"`. Other keywords are those of `load`. `model` is what answers.
    """

    def __init__(self, model: str | os.PathLike[str], **settings: Any) -> None:
        self.model = demo(**settings) if model == "demo" else load(model, **settings)

    def generate(
        self,
        prompts: Union[str, Sequence[Union[str, Mapping[str, Any]]]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = False,
    ) -> list[RequestOutput]:
        """Generates answers to prompts in one batch: texts, or `{"prompt": text}` or `{"prompt_token_ids": ids}`.

        Raises what `Model.generate` does.
        """
        listed = [prompts] if isinstance(prompts, (str, Mapping)) else list(prompts)
        return self._answer([_continued(one) for one in listed], sampling_params, use_tqdm)

    def chat(
        self,
        messages: Union[Sequence[Message], Sequence[Sequence[Message]]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = False,
    ) -> list[RequestOutput]:
        """Generates the answer to a conversation, or to several."""
        several = bool(messages) and not isinstance(messages[0], Mapping)
        listed: list[Any] = list(messages) if several else [messages]
        return self._answer(listed, sampling_params, use_tqdm)

    def _answer(
        self, prompts: list[Any], params: SamplingParams | Sequence[SamplingParams] | None, progress: bool
    ) -> list[RequestOutput]:
        if params is None or isinstance(params, SamplingParams):
            params = [params or SamplingParams()] * len(prompts)
        if len(params) != len(prompts):
            raise ValueError(f"{len(params)} sampling_params for {len(prompts)} prompts, expected one for all or one for each")
        asked = [(prompt, one.options(choice)) for prompt, one in zip(prompts, params, strict=True) for choice in range(one.n)]
        answers = iter(
            self.model.generate([prompt for prompt, _ in asked], each=[options for _, options in asked], progress=progress)
        )
        found = []
        for number, (prompt, one) in enumerate(zip(prompts, params, strict=True)):
            outputs = [_output(index, next(answers), one.stop_token_ids or []) for index in range(one.n)]
            first = outputs[0].generation
            ids = first.canvas[: first.prompt_tokens]
            found.append(RequestOutput(str(number), str(prompt) if isinstance(prompt, Raw) else None, ids, outputs))
        return found


def _continued(prompt: Union[str, Mapping[str, Any]]) -> Union[Raw, Tokens]:
    if isinstance(prompt, str):
        return Raw(prompt)
    if "prompt_token_ids" in prompt:
        return Tokens(prompt["prompt_token_ids"])
    if "prompt" in prompt:
        return Raw(prompt["prompt"])
    raise TypeError(f"a prompt has the keys {sorted(prompt)}, expected 'prompt' or 'prompt_token_ids'")


def _output(index: int, answer: Generation, stop_tokens: list[int]) -> CompletionOutput:
    # An end token of the model's own is no stop reason in vLLM, which names only what was asked for.
    reason = answer.end_token if answer.end_token in stop_tokens else answer.stop_text
    return CompletionOutput(index, str(answer), answer.tokens, answer.finish_reason, reason, answer.logprobs, answer)
