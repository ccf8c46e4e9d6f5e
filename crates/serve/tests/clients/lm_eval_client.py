"""lm-evaluation-harness against a server, by its own clients."""

import os
import sys
from pathlib import Path

from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

from checks import MODEL, URL, run

ROOT = Path(os.environ["CHECK_ROOT"])
TASKS = ROOT / "bench/lm_eval"
# The task names its file from the root of the repository.
os.chdir(ROOT)
# A tokenizer is never fetched: the server has it.
REMOTE = "tokenizer_backend=remote,max_retries=1,seed=7"
# Without the thousands of tasks that the harness brings, of which reading the names takes a quarter of a minute.
MANAGER = TaskManager(include_path=[str(TASKS)], include_defaults=False)


def evaluated(model, arguments, tasks="wordmath", **given):
    found = simple_evaluate(
        model=model,
        model_args=arguments,
        tasks=[tasks],
        limit=4,
        task_manager=MANAGER,
        bootstrap_iters=0,
        cache_requests=False,
        **given,
    )
    return found["results"][tasks]


def check_local_completions():
    found = evaluated("local-completions", f"model={MODEL},base_url={URL}/v1/completions,num_concurrent=2,{REMOTE}")
    assert 0.0 <= found["exact_match,last-number"] <= 1.0, found


def check_local_completions_of_texts():
    found = evaluated(
        "local-completions", f"model={MODEL},base_url={URL}/v1/completions,tokenized_requests=False,{REMOTE}"
    )
    assert 0.0 <= found["exact_match,last-number"] <= 1.0, found


def check_local_chat_completions():
    found = evaluated(
        "local-chat-completions",
        f"model={MODEL},base_url={URL}/v1/chat/completions,num_concurrent=2",
        apply_chat_template=True,
    )
    assert found["exact_match,last-number"] >= 0.5, found


def check_likelihoods_or_the_door_to_them():
    """An autoregressive model's likelihoods; any other model's refusal, which names /v1/score."""
    arguments = f"model={MODEL},base_url={URL}/v1/completions,{REMOTE}"
    if os.environ.get("CHECK_CAUSAL"):
        found = evaluated("local-completions", arguments, tasks="wordmath_choice")
        assert 0.0 <= found["acc,none"] <= 1.0, found
        return
    try:
        evaluated("local-completions", arguments, tasks="wordmath_choice")
    except Exception as error:
        assert "400" in f"{error!r} {error.__cause__!r}" or "RetryError" in repr(error), error
    else:
        raise AssertionError("a diffusion model answered echo with likelihoods that mean nothing")


if __name__ == "__main__":
    run(sys.modules[__name__])
