"""The official Python client against a server that is soon full: refusals, their headers, and retries."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import openai

from checks import KEY, MODEL, QUESTION, URL, equal, run

CROWD = 12


def ask(client, tokens=64):
    given = {"model": MODEL, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": tokens, "seed": 7}
    return client.chat.completions.create(**given, extra_body={"ignore_eos": True, "diffusion": {"decoder": "static"}})


def crowd(retries):
    """What as many requests at once come to: answers, and errors with the seconds that they took."""
    client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=retries, timeout=120)

    def one(_):
        began = time.monotonic()
        try:
            return ask(client), None
        except openai.APIStatusError as error:
            return None, (error, time.monotonic() - began)

    with ThreadPoolExecutor(CROWD) as threads:
        outcomes = list(threads.map(one, range(CROWD)))
    return [answer for answer, _ in outcomes if answer], [error for _, error in outcomes if error]


def check_refusals():
    answers, errors = crowd(retries=0)
    assert answers and errors, f"{len(answers)} answers, {len(errors)} errors: expected both"
    for error, _ in errors:
        equal((type(error), error.status_code, error.code), (openai.InternalServerError, 503, "overloaded"))
        wait = error.response.headers["retry-after"]
        assert wait.isdecimal() and 1 <= int(wait) <= 60, wait
        assert error.request_id
    equal(len({answer.choices[0].message.content for answer in answers}), 1, "different answers of the same request")


def check_retries_come_through():
    answers, errors = crowd(retries=30)
    equal((len(answers), [str(error) for error, _ in errors]), (CROWD, []))


if __name__ == "__main__":
    run(sys.modules[__name__])
