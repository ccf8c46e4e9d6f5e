"""Watch a canvas: what each forward commits, printed as it comes, and a page that shows the whole of it.

    python watch_canvas.py [PAGE.html]
"""

import pathlib
import sys

import demask

QUESTION = "Ada has 13 pears. Ben gives Ada 5 more. How many pears are there in the end?"


def main() -> None:
    """Streams one answer, and draws it."""
    with demask.demo() as model:
        stream = model.stream(QUESTION, decoder="threshold:tau=0.99", cache="none", block_length=32, gen_length=32)
        for update in stream:
            for commit in update.commits:
                piece = model.tokenizer.decode([commit.token], special=True)
                print(f"forward {commit.step:2}  position {commit.position:3}  {commit.confidence:.3f}  {piece!r}")
            if update.text:
                print(f"            settled: {update.text!r}")
        answer = stream.answer
        assert answer is not None
        print(answer)

        # What a notebook shows of an answer is a page of its own.
        trace = model.trace(QUESTION, decoder="static", gen_length=32, block_length=32)
        page = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "canvas.html")
        assert trace.answer is not None
        page.write_text(f"<!doctype html><meta charset='utf-8'><title>A canvas</title>{trace.answer.html()}", encoding="utf-8")
        print(f"{page} has the picture")


if __name__ == "__main__":
    main()
