"""lm-evaluation-harness against demask: each prompt is one call of `demask generate --json`.

    python bench/lm_eval/model.py --tasks wordmath --include-path bench/lm_eval --limit 20 --chat \
        --output results.json -- --decoder freedave:d=4 --cache dual

Everything behind `--` goes to `demask generate` as it is: model, device, decoder, cache, lengths. With --chat a prompt is
a user's message and the checkpoint's chat template is applied, otherwise it is read as it is (--raw). Each call loads the
model anew: fine for small models and for checking figures of `demask eval`, which loads it once.

Only tasks that generate text: likelihoods are left to `demask eval --score likelihood`.
Needs: pip install lm-eval (0.4), and the demask binary in PATH or named by --binary.
"""

import argparse
import json
import subprocess
import sys

from lm_eval.api.model import LM
from lm_eval.evaluator import simple_evaluate
from lm_eval.tasks import TaskManager

# What the harness asks of generation, and what carries it out; the rest must be what greedy decoding means.
FLAGS = {"max_gen_toks": "--gen-length", "temperature": "--temperature", "top_p": "--top-p", "top_k": "--top-k"}
GREEDY = {"do_sample": (False, None)}


class Demask(LM):
    """A model that answers through the demask binary."""

    def __init__(self, binary, arguments, chat):
        super().__init__()
        self.command = [binary, "generate", "--json", "--quiet", "--prompt-file", "-"]
        self.command += [] if chat else ["--raw"]
        self.arguments = arguments
        self.receipts = []

    def generate_until(self, requests):
        return [self.answer(*request.args) for request in requests]

    def answer(self, context, options):
        command = self.command + self.flags(options) + self.arguments
        # The newline that demask takes from the end of a file is not the prompt's own.
        run = subprocess.run(command, input=context + "\n", capture_output=True, text=True, check=False)
        if run.returncode != 0:
            sys.exit(f"{' '.join(command)}: {run.stderr.strip()}")
        found = json.loads(run.stdout)
        self.receipts.append(found["receipt"])
        return found["text"]

    def flags(self, options):
        flags = []
        for name, value in options.items():
            if name == "until":
                texts = [value] if isinstance(value, str) else value
                flags += [part for text in texts for part in ("--stop", text)]
            elif name in FLAGS:
                # What the user names behind `--` is meant for all tasks.
                flags += [] if FLAGS[name] in self.arguments else [FLAGS[name], str(value)]
            elif value not in GREEDY.get(name, ()):
                sys.exit(f"the task asks for {name}={value!r}, which demask generate does not know")
        return flags

    def loglikelihood(self, requests):
        sys.exit("this task compares likelihoods: use demask eval --score likelihood")

    def loglikelihood_rolling(self, requests):
        self.loglikelihood(requests)


def main():
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", required=True, help="names of tasks, separated by commas")
    parser.add_argument("--include-path", help="directory with more tasks")
    parser.add_argument("--num-fewshot", type=int)
    parser.add_argument("--limit", type=int, help="items of each task")
    parser.add_argument("--chat", action="store_true", help="apply the checkpoint's chat template")
    parser.add_argument("--binary", default="demask")
    parser.add_argument("--output", help="file for the harness's results")
    args = parser.parse_args(sys.argv[1:split])
    model = Demask(args.binary, sys.argv[split + 1 :], args.chat)
    found = simple_evaluate(
        model=model,
        tasks=args.tasks.split(","),
        num_fewshot=args.num_fewshot,
        limit=args.limit,
        task_manager=TaskManager(include_path=args.include_path),
        bootstrap_iters=0,
    )
    print(json.dumps(found["results"], indent=2, default=str))
    nfe = sum(receipt["nfe"] for receipt in model.receipts)
    seconds = sum(receipt["seconds"]["total"] for receipt in model.receipts)
    print(f"{len(model.receipts)} answers, {nfe} NFE, {seconds:.2f} s without loading", file=sys.stderr)
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=2, default=str)


if __name__ == "__main__":
    main()
