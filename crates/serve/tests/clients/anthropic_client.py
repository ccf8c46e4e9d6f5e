"""Anthropic's official Python client against a server: messages whole, in pieces, counted, cut and refused."""

import sys

import anthropic

from checks import KEY, MODEL, QUESTION, URL, equal, plain, run

client = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0, timeout=120)
MESSAGES = [{"role": "user", "content": QUESTION}]


def create(**given):
    return client.messages.create(**{"model": MODEL, "max_tokens": 32, "messages": MESSAGES, **given})


def check_message():
    found = create(system="Be brief.")
    equal((found.type, found.role, found.stop_reason), ("message", "assistant", "end_turn"))
    body = {"model": MODEL, "messages": MESSAGES, "max_tokens": 32}
    chat = plain("/v1/chat/completions", body).json()
    equal(create().content[0].text, chat["choices"][0]["message"]["content"])


def check_stream():
    whole = create()
    with client.messages.stream(model=MODEL, max_tokens=32, messages=MESSAGES) as stream:
        equal("".join(stream.text_stream), whole.content[0].text)
        end = stream.get_final_message()
    equal((end.stop_reason, end.usage.output_tokens), (whole.stop_reason, whole.usage.output_tokens))


def check_count():
    counted = client.messages.count_tokens(model=MODEL, messages=MESSAGES).input_tokens
    usage = create().usage
    equal(counted, usage.input_tokens + usage.cache_read_input_tokens)


def check_ends():
    equal(create(max_tokens=2).stop_reason, "max_tokens")
    stopped = create(stop_sequences=["final"])
    equal((stopped.stop_reason, stopped.stop_sequence), ("stop_sequence", "final"))


def check_prefill():
    begun = [*MESSAGES, {"role": "assistant", "content": "The final answer is"}]
    body = {"model": MODEL, "messages": begun, "max_tokens": 32, "continue_final_message": True}
    chat = plain("/v1/chat/completions", body).json()
    equal(create(messages=begun).content[0].text, chat["choices"][0]["message"]["content"])


def check_refusals():
    for given in ({"messages": []}, {"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"extra_body": {"temperature": 3.0}}):
        try:
            create(**given)
        except anthropic.BadRequestError as error:
            equal(error.body["error"]["type"], "invalid_request_error")
        else:
            raise AssertionError(f"{given} was served")


if __name__ == "__main__":
    run(sys.modules[__name__])
