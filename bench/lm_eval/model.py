"""lm-evaluation-harness against demask: a server that runs, or a call of `demask generate --json` for each prompt.

    python bench/lm_eval/model.py --tasks wordmath --include-path bench/lm_eval --limit 20 --chat \
        --url http://127.0.0.1:8080 --at-once 16 --diffusion '{"decoder": "freedave:d=4", "cache": "dual"}'
    python bench/lm_eval/model.py --tasks wordmath --include-path bench/lm_eval --limit 20 --chat \
        --output results.json -- --decoder freedave:d=4 --cache dual

With --chat a prompt is a user's message and the checkpoint's chat template is applied, otherwise it is read as it is.

With --url, `demask serve` answers: --at-once requests share its forwards, and tasks that compare likelihoods are scored
through /v1/score: for diffusion models a bound from --draws masks, for autoregressive ones the likelihood itself.
Whether a continuation is what greedy decoding would write is not told by a bound: that column is always false.

Without it, everything behind `--` goes to `demask generate` as it is: model, device, decoder, cache, lengths. Each call
loads the model anew: fine for small models and for checking figures of `demask eval`, which loads it once. Only tasks
that generate text.

Needs: pip install lm-eval (0.4), and a server, or the demask binary in PATH or named by --binary.
"""

import argparse
import json
import os
import subprocess
import sys

from lm_eval.api.model import LM
from lm_eval.evaluator import simple_evaluate
from lm_eval.tasks import TaskManager

import server

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
        sys.exit("this task compares likelihoods: use --url, or demask eval --score likelihood")

    def loglikelihood_rolling(self, requests):
        self.loglikelihood(requests)


class DemaskServer(LM):
    """A model that answers through a demask server."""

    def __init__(self, asked, chat=False, diffusion=None, at_once=8, draws=None, seed=0, batch=16):
        super().__init__()
        self.asked, self.chat, self.diffusion = asked, chat, diffusion
        self.at_once, self.draws, self.seed, self.batch = at_once, draws, seed, batch
        self.receipts = []

    def generate_until(self, requests):
        def answer(request):
            return self.asked.generate(*request.args, chat=self.chat, diffusion=self.diffusion)

        answers = server.in_order(answer, requests, self.at_once)
        self.receipts += [receipt for _, receipt in answers]
        return [text for text, _ in answers]

    def loglikelihood(self, requests):
        if self.chat:
            sys.exit("this task compares likelihoods of texts as they are: omit --chat")
        pairs = [request.args for request in requests]
        parts = [pairs[begin : begin + self.batch] for begin in range(0, len(pairs), self.batch)]
        scored = server.in_order(lambda part: self.asked.score(part, self.draws, self.seed), parts, self.at_once)
        return [(value, False) for part in scored for value, _ in part]

    def loglikelihood_rolling(self, requests):
        sys.exit("this task wants the likelihood of whole texts, and a server scores continuations behind a context")


def model(args, behind):
    """The model that the arguments name."""
    if not args.url:
        of_servers = ("model", "api_key_env", "diffusion", "draws")
        given = [name for name in of_servers if getattr(args, name) is not None]
        if given:
            sys.exit(f"--{given[0].replace('_', '-')} goes with --url: give what demask generate takes behind --")
        return Demask(args.binary, behind, args.chat)
    if behind:
        sys.exit("what stands behind -- is for demask generate: with --url, give --diffusion JSON")
    key = os.environ.get(args.api_key_env) if args.api_key_env else None
    if args.api_key_env and not key:
        sys.exit(f"--api-key-env: the environment has no {args.api_key_env}: set it to the server's key")
    asked = server.Server(args.url, args.model, key)
    return DemaskServer(asked, args.chat, args.diffusion, args.at_once, args.draws, args.seed)


def options(text):
    """Options of decoding, as JSON."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError('expected an object: \'{"decoder": "threshold"}\'')
    return found


def number(text):
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def main():
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", required=True, help="names of tasks, separated by commas")
    parser.add_argument("--include-path", help="directory with more tasks")
    parser.add_argument("--num-fewshot", type=int)
    parser.add_argument("--limit", type=int, help="items of each task")
    parser.add_argument("--chat", action="store_true", help="apply the checkpoint's chat template")
    parser.add_argument("--binary", default="demask")
    parser.add_argument("--url", help="a server that answers: http://HOST:PORT")
    parser.add_argument("--model", help="the model's name on the server [default: its first]")
    parser.add_argument("--api-key-env", help="environment variable with the server's key")
    parser.add_argument("--at-once", type=number, default=8, help="requests at the same time [default: 8]")
    parser.add_argument("--diffusion", type=options, help="options of decoding for the server, as JSON")
    parser.add_argument("--draws", type=number, help="masks drawn for a likelihood [default: the server's]")
    parser.add_argument("--seed", type=int, default=0, help="key of those masks [default: 0]")
    parser.add_argument("--output", help="file for the harness's results")
    args = parser.parse_args(sys.argv[1:split])
    try:
        evaluate(args, model(args, sys.argv[split + 1 :]))
    except server.ServerError as error:
        sys.exit(str(error))


def evaluate(args, asked):
    """Runs the tasks and tells what they found."""
    found = simple_evaluate(
        model=asked,
        tasks=args.tasks.split(","),
        num_fewshot=args.num_fewshot,
        limit=args.limit,
        task_manager=TaskManager(include_path=args.include_path),
        bootstrap_iters=0,
    )
    print(json.dumps(found["results"], indent=2, default=str))
    nfe = sum(receipt["nfe"] for receipt in asked.receipts)
    seconds = sum(receipt["seconds"]["total"] for receipt in asked.receipts)
    print(f"{len(asked.receipts)} answers, {nfe} NFE, {seconds:.2f} s without loading", file=sys.stderr)
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=2, default=str)


if __name__ == "__main__":
    main()
