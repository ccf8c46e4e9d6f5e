"""demask as a model of lm-evaluation-harness, without a server: `pip install 'demask[lm-eval]'`.

    demask-lm-eval run --model demask --model_args model=demo,decoder=threshold --batch_size 16 --apply_chat_template --tasks gsm8k

The harness has no list that other packages may add to, so `demask-lm-eval` is its own command with this model added. From a
program, importing this module is enough: `lm_eval.simple_evaluate(model="demask", ...)`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

try:
    from lm_eval.__main__ import cli_evaluate
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
    from lm_eval.utils import simple_parse_args_string
except ImportError as error:
    raise ImportError(f"lm_eval cannot be imported ({error}): pip install 'demask[lm-eval]'") from error

from ._model import BATCH, demo, load
from ._options import LoadOptions, Options
from ._prompt import Prompt, Raw, Tokens
from .errors import Error, OptionsError

if TYPE_CHECKING:
    from ._generation import Generation

__all__ = ["Demask", "main"]

LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""What tasks call the most tokens of an answer, as the harness knows them."""

DEFAULT_DEVICE = "cuda:0"
"""The device that the harness's command names where its user names none."""

SAMPLING = ("temperature", "top_p", "top_k", "seed")

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "num_beams": (1,),
    "num_return_sequences": (1,),
    "repetition_penalty": (1.0,),
    "skip_special_tokens": (True,),
    "use_cache": (True, False),
}
"""Options of tasks that change nothing where they have one of these values."""


class Demask(LM):
    """A model of the harness. `model` is `demo` or what `demask.load` takes; other keywords are those of `demask.load` and of an
    answer, which stand over a task's own. `draws` are the masks for each likelihood of a diffusion model.
    """

    def __init__(
        self,
        model: str = "demo",
        *,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        draws: int | None = None,
        **settings: Any,
    ) -> None:
        """Loads the model. `batch_size` requests run at the same time: 64 if it is not set, or `auto`.

        Raises `OptionsError` for a keyword that is none, and what `demask.load` does.
        """
        super().__init__()
        own = {name: value for name, value in settings.items() if name in LoadOptions.__annotations__}
        chosen = {name: value for name, value in settings.items() if name not in own}
        unknown = [name for name in chosen if name not in Options.__annotations__ or name == "transfer"]
        if unknown:
            raise OptionsError(f"{unknown[0]} is no setting of a model or of an answer: see `demask help generate`")
        self.batch = width(batch_size, max_batch_size)
        self.model = demo(**cast("Any", own)) if model == "demo" else load(model, **cast("Any", own))
        self.chosen, self.draws = chosen, draws
        self.counts = {"answers": 0, "nfe": 0, "seconds": 0.0}

    @classmethod
    def create_from_arg_obj(cls, arg_dict: dict[str, Any], additional_config: dict[str, Any] | None = None) -> Demask:
        """Loads the model that `--model_args` name. What they say stands over the harness's flags, and its default device is no wish."""
        more = {name: value for name, value in (additional_config or {}).items() if value is not None and name not in arg_dict}
        if more.get("device") == DEFAULT_DEVICE:
            del more["device"]
        return cls(**arg_dict, **more)

    @classmethod
    def create_from_arg_string(cls, arg_string: str, additional_config: dict[str, Any] | None = None) -> Demask:
        """Loads the model that a text of `name=value,name=value` names."""
        return cls.create_from_arg_obj(simple_parse_args_string(arg_string), additional_config)

    # Answers.

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Returns the answers to prompts, which are texts as they are: the template is applied before."""
        prompts = [Raw(request.args[0]) for request in requests]
        each = self._options(requests)
        progress = False if disable_tqdm else self._progress("answers")
        answers = self.model.generate(prompts, each=each, batch=self.batch, progress=progress)
        self._count(answers)
        return self._kept("generate_until", requests, [str(answer) for answer in answers])

    def _options(self, requests: Iterable[Any]) -> list[Options]:
        """Returns the options of each answer. A prompt that comes again is drawn with another seed: a task wants several answers then."""
        found, seen = [], Counter[str]()
        for request in requests:
            mine = options(request.args[1]) | self.chosen
            # A second run is to have the same answers: no seed is drawn.
            if mine.get("temperature") or mine.get("alg_temp"):
                mine["seed"] = (mine.get("seed") or 0) + seen[request.args[0]]
                seen[request.args[0]] += 1
            found.append(cast("Options", mine))
        return found

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Returns a conversation as the model's template puts it."""
        return self.model.chat_template(chat_history, generation_prompt=add_generation_prompt)

    @property
    def tokenizer_name(self) -> str:
        """Name of the model, by which the harness keeps requests with its template."""
        return f"{self.model.name}-{self.model.info['fingerprint']}"

    # Likelihoods.

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Returns the log-probability of each continuation behind its context, and whether greedy decoding would write it: of
        diffusion models, whose likelihood is a bound, that is always false.
        """
        found = self._scored([(self._context(context), continuation) for context, continuation in (one.args for one in requests)])
        return self._kept("loglikelihood", requests, found)

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Returns the log-probability of each text as a whole, behind an end token. One that is longer than the context is refused."""
        found = self._scored([(self._context(""), request.args[0]) for request in requests])
        return self._kept("loglikelihood_rolling", requests, [value for value, _ in found])

    def _context(self, text: str) -> Prompt:
        # A likelihood needs something before the text: where there is nothing, what ends the text before it.
        return Raw(text) if text else Tokens(self.model.info["end_tokens"][:1])

    def _scored(self, pairs: Iterable[tuple[Prompt, str]]) -> list[tuple[float, bool]]:
        causal = self.model.info["attention"] == "causal"

        def score(pair: tuple[Prompt, str]) -> tuple[float, bool]:
            found = self.model.score(*pair, draws=self.draws, seed=self.chosen.get("seed"), top=1 if causal else None)
            greedy = causal and all(one.logprob == one.top[0][1] for one in found.logprobs)
            return found.log_probability, greedy

        with ThreadPoolExecutor(self.batch) as threads:
            return list(threads.map(score, pairs))

    # What the harness is told.

    def get_model_info(self) -> dict[str, Any]:
        """Returns what the harness writes beside its results: the model, and what its answers took together."""
        names = ("name", "fingerprint", "family", "device")
        return {f"demask_{name}": self.model.info[name] for name in names} | {f"demask_{name}": count for name, count in self.counts.items()}

    def _count(self, answers: Iterable[Generation]) -> None:
        for answer in answers:
            self.counts["answers"] += 1
            self.counts["nfe"] += answer.nfe
            self.counts["seconds"] += answer.receipt["seconds"]["total"]

    def _kept(self, kind: str, requests: Sequence[Any], found: list[Any]) -> list[Any]:
        """Leaves what was found to the harness's cache, and returns it."""
        for request, one in zip(requests, found, strict=True):
            self.cache_hook.add_partial(kind, request.args, one)
        return found

    def _progress(self, what: str) -> Callable[[int, int], object]:
        return lambda done, count: print(f"\r{done} of {count} {what}", end="\n" if done == count else "", file=sys.stderr, flush=True)


def width(batch_size: int | str | None, most: int | None) -> int:
    """Returns how many requests run at the same time.

    Raises `OptionsError` for what is no number from 1 on, nor `auto`.
    """
    if batch_size is None or str(batch_size).startswith("auto"):
        return min(BATCH, most or BATCH)
    if not str(batch_size).isdecimal() or int(batch_size) == 0:
        raise OptionsError(f"batch_size is {batch_size}, expected a whole number from 1 on, or auto")
    return int(batch_size)


def options(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a task asks of generation as options of an answer.

    Raises `OptionsError` for what demask does not know.
    """
    found: dict[str, Any] = {}
    for name, value in asked.items():
        if name == "until":
            texts = [value] if isinstance(value, str) else list(value or [])
            found["stop"] = [text for text in texts if text] or None
        elif name in LENGTHS:
            found.setdefault("max_tokens", value)
        elif name in SAMPLING:
            found[name] = value
        elif name != "do_sample" and value is not None and value not in NEUTRAL.get(name, ()):
            raise OptionsError(f"the task asks for {name}={value!r}, which demask does not know: take it out with --gen_kwargs or the task's file")
    if not asked.get("do_sample", found.get("temperature")):
        # Greedy decoding, whatever filters the task names beside it.
        found = {name: value for name, value in found.items() if name not in ("temperature", "top_p", "top_k")}
    elif "temperature" not in found:
        found["temperature"] = 1.0
    return found


register_model("demask")(Demask)


def main() -> None:
    """Runs the harness's command with this model added. What demask refuses ends it with one line."""
    try:
        cli_evaluate()
    except Error as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
