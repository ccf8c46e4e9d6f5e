"""Write a transfer rule: which predictions of a forward are taken, said in Python.

    python own_transfer_rule.py

The rule takes what is nearly as sure as the surest prediction of the block.
"""

from __future__ import annotations

import demask
import numpy as np
import numpy.typing as npt

QUESTION = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?"


class MarginDrop(demask.Transfer):
    """Takes every prediction whose confidence lies within a margin of the best one's."""

    def __init__(self, delta: float) -> None:
        self.name = f"margin_drop_{delta}"
        self.delta = delta

    def choose(self, step: demask.types.Step) -> npt.NDArray[np.intp]:
        """Returns indices of the predictions that are taken, in the order of their commits."""
        return np.flatnonzero(step.confidence >= step.confidence.max() - self.delta)


def main() -> None:
    """Decodes by the rule, with several margins."""
    with demask.demo() as model:
        for delta in (0.0, 0.05, 0.5):
            answer = model.generate(QUESTION, transfer=MarginDrop(delta))
            print(f"delta {delta}: {answer.nfe} NFE, {answer.receipt['decoder']}, {answer.receipt['exactness']}: {str(answer)!r}")


if __name__ == "__main__":
    main()
