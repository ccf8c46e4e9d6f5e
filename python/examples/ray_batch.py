"""A batch on Ray: questions from a file of JSON lines, answered by a pool of workers, written as parquet.

    python python/examples/ray_batch.py [QUESTIONS.jsonl] [--out FOLDER] [--workers 2] [--model NAME]

Needs `pip install 'demask[ray]'`. Each line of QUESTIONS has a "key" and a "prompt"; without a file a few questions are
asked of the built-in demo. Run it again, with other workers, or on a cluster (`RAY_ADDRESS=auto`): the answers are the same
bytes, because a row's seed is made of its key.
"""

import argparse
import sys

import demask_ray
import ray

QUESTIONS = [
    {"key": f"pears {number}", "prompt": f"Ada has {number} pears. Ben gives Ada 4 more. How many pears are there in the end?"}
    for number in range(3, 15)
]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("questions", nargs="?")
    parser.add_argument("--out", default="answers")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--model")
    asked = parser.parse_args()

    # The cluster of RAY_ADDRESS, or this machine.
    ray.init(log_to_driver=False)
    questions = ray.data.read_json(asked.questions, lines=True) if asked.questions else ray.data.from_items(QUESTIONS)
    # One block a worker at least, or there is nothing to share. All of it is read before workers start: they may take every
    # core of a small cluster, and reading would wait for one.
    questions = questions.repartition(asked.workers).materialize()
    # Without materialize() the rows would be answered again for each use of them.
    answers = demask_ray.generate(
        questions,
        demask_ray.Model(asked.model, threads=1),
        workers=asked.workers,
        batch=16,
        options={"gen_length": 64},
        errors="column",
    ).materialize()
    answers.write_parquet(asked.out)

    for row in sorted(answers.take(5), key=lambda row: str(row["key"])):
        print(f"{row['key']}: {row['text']!r} ({row['finish']}, {row['nfe']} forwards)")
    failed = answers.filter(lambda row: row["error"] != "").count()
    print(f"{answers.count()} answers in {asked.out}, {failed} rows could not be answered")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
