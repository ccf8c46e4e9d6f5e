"""A first answer: load a model, ask it, and see what it cost.

    python first_answer.py [MODEL]

Without a model the built-in one answers, which solves word problems.
"""

import sys

import demask

QUESTION = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?"


def main() -> None:
    """Asks one question."""
    with demask.load(sys.argv[1]) if len(sys.argv) > 1 else demask.demo() as model:
        answer = model.generate(QUESTION)
        print(answer)
        receipt = answer.receipt
        print(f"{answer.generated_tokens} tokens in {answer.nfe} NFE, {receipt['decoder']} over {receipt['cache']}: {receipt['exactness']}")

        slow = model.generate(QUESTION, decoder="static")
        print(f"static decoding takes {slow.nfe} NFE for the same {slow.generated_tokens} tokens")


if __name__ == "__main__":
    main()
