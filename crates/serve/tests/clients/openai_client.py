"""The official Python client against a server: everything that its users call."""

import http.client
import json
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Literal
from urllib.parse import urlsplit

import openai
import pydantic

from checks import KEY, MODEL, QUESTION, URL, Reply, equal, plain, run

client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0, timeout=120)
MESSAGES = [{"role": "user", "content": QUESTION}]


def chat(**given):
    return client.chat.completions.create(
        **{"model": MODEL, "messages": MESSAGES, "max_tokens": 32, "seed": 7, **given}
    )


def complete(**given):
    return client.completions.create(**{"model": MODEL, "prompt": "Ada has", "max_tokens": 16, "seed": 7, **given})


def raises(kind, work):
    try:
        work()
    except kind as error:
        return error
    raise AssertionError(f"no error, expected {kind.__name__}")


def text_of(chunks):
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def check_responses():
    whole = client.responses.create(model=MODEL, input=QUESTION, max_output_tokens=32)
    equal((whole.status, whole.output_text), ("completed", chat(temperature=0).choices[0].message.content))
    with client.responses.stream(model=MODEL, input=QUESTION, max_output_tokens=32) as stream:
        pieces = [event.delta for event in stream if event.type == "response.output_text.delta"]
        equal("".join(pieces), whole.output_text)
        equal(stream.get_final_response().usage.output_tokens, whole.usage.output_tokens)
    cut = client.responses.create(model=MODEL, input=QUESTION, max_output_tokens=2)
    equal((cut.status, cut.incomplete_details.reason), ("incomplete", "max_output_tokens"))
    raises(openai.BadRequestError, lambda: client.responses.create(model=MODEL, input="a", previous_response_id="resp_1"))


def check_parsed_answers():
    class Count(pydantic.BaseModel):
        pears: int = pydantic.Field(ge=0, le=99)
        sure: bool
        who: Literal["Ada", "Ben"]

    found = client.chat.completions.parse(
        model=MODEL, messages=MESSAGES, max_tokens=48, seed=7, response_format=Count
    )
    assert isinstance(found.choices[0].message.parsed, Count), found
    responded = client.responses.parse(model=MODEL, input=QUESTION, max_output_tokens=48, text_format=Count)
    assert isinstance(responded.output_parsed, Count), responded
    whole = chat(response_format={"type": "json_object"}, max_tokens=16)
    assert isinstance(json.loads(whole.choices[0].message.content), dict), whole
    one = chat(extra_body={"structured_outputs": {"choice": ["seven", "eight"]}})
    assert one.choices[0].message.content in ("seven", "eight"), one


def check_models():
    models = client.models.list().data
    assert MODEL in [model.id for model in models], [model.id for model in models]
    about = client.models.retrieve(MODEL)
    equal((about.object, about.id), ("model", MODEL))
    assert about.model_extra["max_model_len"] > 0
    diffusion = about.model_extra["diffusion"]
    for name in (
        "family",
        "attention",
        "infill",
        "decoders",
        "caches",
        "guides",
        "default_gen_length",
        "max_gen_length",
    ):
        assert name in diffusion, name
    raises(openai.NotFoundError, lambda: client.models.retrieve("no-such-model"))


def check_chat_whole():
    found = chat()
    equal(found.object, "chat.completion")
    assert found.id.startswith("chatcmpl-"), found.id
    choice = found.choices[0]
    equal((choice.index, choice.message.role, len(found.choices)), (0, "assistant", 1))
    assert choice.finish_reason in ("stop", "length"), choice.finish_reason
    assert choice.message.content
    usage = found.usage
    equal(usage.prompt_tokens + usage.completion_tokens, usage.total_tokens)
    assert 0 < usage.completion_tokens <= 32, usage
    assert isinstance(found.system_fingerprint, str) and found.created > 1_600_000_000


def check_chat_stream_is_the_whole_answer():
    chunks = list(chat(stream=True))
    equal(text_of(chunks), chat().choices[0].message.content, "text")
    equal(len({chunk.id for chunk in chunks}), 1, "ids")
    equal(len({chunk.created for chunk in chunks}), 1, "times of creation")
    equal({chunk.object for chunk in chunks}, {"chat.completion.chunk"})
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert reasons[-1] in ("stop", "length") and not any(reasons[:-1]), reasons
    roles = [bool(chunk.choices[0].delta.role) for chunk in chunks if chunk.choices]
    texts = [bool(chunk.choices[0].delta.content) for chunk in chunks if chunk.choices]
    equal(roles.index(True), texts.index(True), "the chunk with the role, which comes with the first text,")
    equal(sum(roles), 1, "chunks with a role")
    assert all(chunk.usage is None for chunk in chunks), "usage that nobody asked for"


def check_stream_usage():
    chunks = list(chat(stream=True, stream_options={"include_usage": True}))
    equal(chunks[-1].choices, [])
    assert chunks[-1].usage.completion_tokens > 0
    assert all(chunk.usage is None for chunk in chunks[:-1])
    error = raises(openai.BadRequestError, lambda: chat(stream_options={"include_usage": True}))
    equal(error.param, "stream_options")


def check_stream_helper():
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES, max_tokens=16, seed=7) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "content.delta" in kinds, kinds
    equal(final.choices[0].message.content, chat(max_tokens=16).choices[0].message.content)


def check_chat_logprobs():
    found = chat(logprobs=True, top_logprobs=3).choices[0]
    tokens = found.logprobs.content
    assert tokens and all(token.logprob <= 0 for token in tokens)
    for token in tokens:
        assert len(token.top_logprobs) <= 3
        values = [other.logprob for other in token.top_logprobs]
        equal(values, sorted(values, reverse=True), "alternatives, best first,")
    joined = b"".join(bytes(token.bytes or []) for token in tokens).decode(errors="replace")
    assert joined.startswith(found.message.content) or found.message.content in joined, (joined, found.message.content)
    streamed = [chunk.choices[0].logprobs for chunk in chat(logprobs=True, stream=True) if chunk.choices]
    equal(sum(len(part.content) for part in streamed if part and part.content), len(tokens), "tokens of the stream")
    raises(openai.BadRequestError, lambda: chat(logprobs=True, top_logprobs=21))
    raises(openai.BadRequestError, lambda: chat(top_logprobs=2))


def check_completions():
    found = complete()
    equal((found.object, len(found.choices)), ("text_completion", 1))
    assert found.id.startswith("cmpl-") and found.choices[0].text is not None
    streamed = "".join(chunk.choices[0].text for chunk in complete(stream=True) if chunk.choices)
    equal(streamed, found.choices[0].text)
    chunks = list(complete(stream=True, stream_options={"include_usage": True}))
    equal(chunks[-1].usage.completion_tokens, found.usage.completion_tokens)


def check_several_prompts():
    prompts = ["Ada has", "Ben has"]
    found = complete(prompt=prompts, n=2)
    equal([choice.index for choice in found.choices], [0, 1, 2, 3])
    alone = [complete(prompt=prompt).choices[0].text for prompt in prompts]
    equal([found.choices[0].text, found.choices[2].text], alone)
    tokens = plain("/tokenize", {"prompt": "Ada has"}).json()["tokens"]
    equal(complete(prompt=tokens).choices[0].text, alone[0], "text behind token ids")
    equal(complete(prompt=[tokens]).choices[0].text, alone[0], "text behind a list of token ids")


def check_completion_logprobs():
    choice = complete(logprobs=2).choices[0]
    found = choice.logprobs
    assert found.tokens and len(found.tokens) == len(found.token_logprobs) == len(found.top_logprobs)
    equal(len(found.text_offset), len(found.tokens))
    assert all(len(top) in (1, 2, 3) for top in found.top_logprobs)
    raises(openai.BadRequestError, lambda: complete(logprobs=6))


def check_choices_and_seeds():
    """Choices take the seed, the seed + 1 and so on; the same seed gives the same answer, another one another."""
    # Behind no clear question, and hot: the demo is sure of its sums.
    warm = {
        "temperature": 2.0,
        "max_tokens": 16,
        "messages": [{"role": "user", "content": "the red boxes of the old town"}],
    }
    both = chat(n=2, **warm).choices
    equal([choice.index for choice in both], [0, 1])
    alone = [chat(seed=seed, **warm).choices[0].message.content for seed in (7, 8)]
    equal([choice.message.content for choice in both], alone)
    equal(chat(**warm).choices[0].message.content, alone[0], "the same request again")
    others = {chat(seed=seed, **warm).choices[0].message.content for seed in range(20, 26)}
    assert len(others) > 1, "six seeds, one answer"
    unseeded = chat(**{**warm, "seed": None})
    drawn = unseeded.model_extra["diffusion"]["seed"]
    again = chat(**{**warm, "seed": drawn})
    equal(again.choices[0].message.content, unseeded.choices[0].message.content, "the answer of the drawn seed")
    many = list(chat(n=2, stream=True, **warm))
    parts = {index: "" for index in (0, 1)}
    for chunk in many:
        for choice in chunk.choices:
            parts[choice.index] += choice.delta.content or ""
    equal([parts[0], parts[1]], alone, "streamed choices")


def check_stops():
    whole = chat().choices[0].message.content
    words = whole.split()
    assert len(words) > 3, whole
    word = words[len(words) // 2]
    found = chat(stop=[word]).choices[0]
    equal(found.message.content, whole[: whole.index(word)], "text before the stop")
    equal((found.finish_reason, found.model_extra.get("stop_reason")), ("stop", word))
    equal(text_of(chat(stop=word, stream=True)), whole[: whole.index(word)], "streamed text before the stop")
    kept = chat(stop=[word], extra_body={"include_stop_str_in_output": True}).choices[0].message.content
    equal(kept, whole[: whole.index(word)] + word)
    raises(openai.BadRequestError, lambda: chat(stop=["x"] * 1000))


def check_lengths():
    for count in (1, 5):
        found = chat(max_tokens=count, extra_body={"ignore_eos": True})
        equal((found.usage.completion_tokens, found.choices[0].finish_reason), (count, "length"))
    equal(chat(max_tokens=None, max_completion_tokens=3).usage.completion_tokens <= 3, True)
    error = raises(openai.BadRequestError, lambda: chat(max_tokens=10**18))
    assert any(letter.isdigit() for letter in error.message), error.message
    for wrong in (0, -1):
        raises(openai.BadRequestError, lambda wrong=wrong: chat(max_tokens=wrong))


def check_content_parts():
    parts = [{"type": "text", "text": QUESTION[:20]}, {"type": "text", "text": QUESTION[20:]}]
    split = chat(messages=[{"role": "user", "content": [{"type": "text", "text": QUESTION}]}])
    equal(split.choices[0].message.content, chat().choices[0].message.content)
    assert chat(messages=[{"role": "user", "content": parts}]).choices[0].message.content
    image = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]
    raises(openai.BadRequestError, lambda: chat(messages=[{"role": "user", "content": image}]))


def check_diffusion_options():
    found = chat(extra_body={"diffusion": {"decoder": "threshold:tau=0.9", "receipt": True}})
    diffusion = found.model_extra["diffusion"]
    equal((diffusion["seed"], diffusion["receipt"]["decoder"].split(":")[0]), (7, "threshold"))
    equal(diffusion["nfe"], diffusion["receipt"]["nfe"])
    last = [chunk for chunk in chat(stream=True, extra_body={"diffusion": {"receipt": True}}) if chunk.choices][-1]
    assert last.model_extra["diffusion"]["receipt"]["forwards"] > 0
    raises(openai.BadRequestError, lambda: chat(extra_body={"diffusion": {"decoder": "quantum"}}))
    error = raises(openai.BadRequestError, lambda: chat(extra_body={"diffusion": {"stepps": 4}}))
    assert "stepps" in str(error.param) and "steps" in error.message, (error.param, error.message)
    error = raises(openai.BadRequestError, lambda: chat(extra_body={"diffusion": {"guide": "nobody"}}))
    assert "nobody" in error.message and error.param == "diffusion.guide", (error.param, error.message)


def check_frames():
    """Commits of all frames, put into the canvas, are the answer's tokens."""
    chunks = list(chat(stream=True, extra_body={"diffusion": {"frames": "commits"}, "return_token_ids": True}))
    frames = [chunk.model_extra["diffusion"] for chunk in chunks if "diffusion" in (chunk.model_extra or {})]
    frames = [frame for frame in frames if "step" in frame]
    canvas = frames[0]["canvas"]
    prompt, length = canvas["prompt_tokens"], canvas["length"]
    cells = {position: token for position, token, _ in canvas["given"]}
    settled = 0
    for frame in frames:
        equal(frame["v"], 1)
        assert frame["settled"] >= settled, "what is settled stays settled"
        settled = frame["settled"]
        for position, token, _, confidence, _ in (entry[:5] for entry in frame["commits"]):
            assert prompt <= position < length and 0 <= confidence <= 1, frame
            cells[position] = token
    equal(frames[-1]["masks"] >= 0, True)
    ids = [
        token for chunk in chunks for choice in chunk.choices for token in (choice.model_extra.get("token_ids") or [])
    ]
    equal([cells.get(prompt + at) for at in range(len(ids))], ids, "committed tokens")
    equal(text_of(chunks), chat().choices[0].message.content, "text beside frames")
    drawn = [
        chunk.model_extra["diffusion"].get("text")
        for chunk in chat(stream=True, extra_body={"diffusion": {"frames": "canvas"}})
        if "diffusion" in (chunk.model_extra or {})
    ]
    assert any(text and "▒" in text for text in drawn), "no canvas with masks"


def check_replacing_stream():
    """Mercury's clients: each content replaces all before it."""
    texts = [
        chunk.choices[0].delta.content for chunk in chat(stream=True, extra_body={"diffusing": True}) if chunk.choices
    ]
    texts = [text for text in texts if text]
    equal(texts[-1], chat().choices[0].message.content)


def check_errors_name_what_is_wrong():
    cases = [
        ({"temperature": -1}, "temperature"),
        ({"n": 0}, "n"),
        ({"n": -1}, "n"),
        ({"n": 10**6}, "n"),
        ({"frequency_penalty": 2.5}, "frequency_penalty"),
        ({"logit_bias": {"5": 101}}, "logit_bias"),
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}, "tools"),
        ({"extra_body": {"no_such_parameter": 1}}, "no_such_parameter"),
        ({"extra_body": {"length_penalty": 1.2}}, "length_penalty"),
    ]
    for given, name in cases:
        error = raises(openai.BadRequestError, lambda given=given: chat(**given))
        equal(error.param, name, f"param for {given}")
        assert error.type == "invalid_request_error" and error.message, (error.type, error.message)
    # Where one model is served under no other name, it answers to any.
    equal(chat(model="gpt-4o").model, MODEL)
    raises(openai.BadRequestError, lambda: chat(messages=[]))
    raises(openai.BadRequestError, lambda: chat(messages=[{"role": "nobody", "content": "x"}]))
    error = raises(openai.BadRequestError, lambda: complete(prompt="Ada has " * 20_000))
    equal(error.code, "context_length_exceeded")


def check_neutral_values_pass():
    neutral = {
        "frequency_penalty": 0,
        "presence_penalty": 0,
        "logit_bias": {},
        "n": 1,
        "response_format": {"type": "text"},
    }
    hints = {
        "user": "somebody",
        "metadata": {"a": "b"},
        "store": False,
        "service_tier": "auto",
        "tools": [],
        "stop": [],
    }
    extra = {
        "repetition_penalty": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "min_tokens": 0,
        "skip_special_tokens": True,
        "logprobs": None,
        "stop": None,
    }
    equal(chat(**neutral, **hints, extra_body=extra).choices[0].message.content, chat().choices[0].message.content)


def check_sampling_parameters_change_answers():
    def probable(**given):
        content = chat(logprobs=True, **given).choices[0].logprobs.content
        return [(token.token, token.logprob) for token in content]

    usual = chat().choices[0].message.content
    # A penalty changes probabilities; whether it changes the text depends on how sure the model is.
    for given in (
        {"frequency_penalty": 2},
        {"presence_penalty": 2},
        {"extra_body": {"repetition_penalty": 2}},
        {"extra_body": {"bad_words": [usual[:2]]}},
    ):
        assert probable(**given) != probable(), given
    tokens = plain("/tokenize", {"prompt": usual[:1], "add_special_tokens": False}).json()["tokens"]
    assert not chat(logit_bias={str(tokens[-1]): -100}).choices[0].message.content.startswith(usual[:1])
    longest = chat(max_tokens=24, extra_body={"min_tokens": 24})
    equal((longest.choices[0].finish_reason, longest.usage.completion_tokens), ("length", 24))


def check_request_ids():
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=MESSAGES, max_tokens=4, extra_headers={"x-request-id": "mine-1"}
    )
    equal(raw.headers["x-request-id"], "mine-1")
    error = raises(openai.BadRequestError, lambda: chat(n=0))
    assert error.request_id, "an error without x-request-id"


def too_large(path):
    """What a server says to a head that promises too much: it need not read the body to know."""
    there = urlsplit(URL)
    connection = http.client.HTTPConnection(there.hostname, there.port, timeout=30)
    connection.putrequest("POST", path)
    for name, value in (
        ("Content-Type", "application/json"),
        ("Content-Length", 1 << 40),
        ("Authorization", f"Bearer {KEY}"),
    ):
        connection.putheader(name, value)
    connection.endheaders(b" " * 1000)
    found = connection.getresponse()
    return Reply(found.status, found.headers, found.read())


def check_the_envelope_everywhere():
    """Whatever the request is, a refusal is JSON with an error of four fields."""
    path = "/v1/chat/completions"
    replies = [
        (404, plain("/v1/nowhere")),
        (405, plain(path)),
        (400, plain(path, b"{")),
        (400, plain(path, b"[]")),
        (400, plain(path, b'{"model": "\xff"}')),
        (400, plain(path, b"[" * 100_000)),
        (400, plain(path, {"model": MODEL})),
        (400, plain(path, {"model": MODEL, "messages": "text"})),
        (413, too_large(path)),
    ]
    for at, (status, reply) in enumerate(replies):
        equal(reply.status, status, f"status of request {at} ({reply.body[:200]!r})")
        equal(set(reply.json()["error"]), {"message", "type", "param", "code"})


def check_cancelled_streams_free_the_server():
    stream = chat(stream=True, max_tokens=64, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    assert chat(max_tokens=4).choices


def check_tokenizer():
    tokens = plain("/tokenize", {"prompt": QUESTION}).json()
    equal(tokens["count"], len(tokens["tokens"]))
    back = plain("/detokenize", {"tokens": tokens["tokens"]}).json()["prompt"]
    assert QUESTION in back, back
    messages = plain("/tokenize", {"messages": MESSAGES}).json()
    equal(messages["count"], chat(max_tokens=1).usage.prompt_tokens, "tokens of the chat")
    assert "eos_token" in plain("/tokenizer_info").json()


def check_scores():
    body = {"context": QUESTION, "continuation": " 7", "draws": 8, "seed": 3}
    found = plain("/v1/score", body).json()
    row = found["data"][0]
    assert row["log_probability"] < 0 and isinstance(row["bound"], bool), row
    pair = {**body, "context": [QUESTION, QUESTION], "continuation": [" 7", " 8"]}
    rows = plain("/v1/score", pair).json()["data"]
    equal([row["index"] for row in rows], [0, 1])
    equal(rows[0]["log_probability"], row["log_probability"], "the score of the same pair")


def check_decisions():
    questions = [
        {"type": "predicate", "name": "right", "instructions": "Is it 7?"},
        {"type": "choice", "instructions": "The final answer is", "choices": [{"value": "7"}, {"value": "9"}]},
        {"type": "score", "instructions": "How many?", "levels": [{"label": "few"}, {"label": "many"}]},
    ]
    found = client.decisions.create(model=MODEL, input=QUESTION, questions=questions)
    predicate, choice, score = found.answers
    equal([answer.type for answer in found.answers], ["predicate", "choice", "score"])
    equal((predicate.name, choice.name), ("right", None))
    assert 0 < predicate.probability < 1, predicate
    equal([one.value for one in choice.probabilities], ["7", "9"])
    equal(choice.confidence, max(one.probability for one in choice.probabilities))
    equal([(one.value, one.label) for one in score.probabilities], [(0, "few"), (1, "many")])
    assert abs(sum(one.probability for one in score.probabilities) - 1) < 1e-9, score
    assert found.usage.input_tokens > 0 and found.usage.output_tokens == 0, found.usage
    equal(client.decisions.create(model=MODEL, input=QUESTION, questions=questions).answers, found.answers, "the same again")


def check_infill():
    if not client.models.retrieve(MODEL).model_extra["diffusion"]["infill"]:
        return
    body = {"segments": ["Ada has ", {"hole": {"tokens": 4}}, " pears."], "seed": 3}
    found = plain("/v1/infill", body).json()
    equal((found["object"], len(found["holes"])), ("infill", 1))
    assert found["text"].startswith("Ada has ") and found["text"].endswith(" pears."), found["text"]
    assert complete(suffix=" pears.", max_tokens=4).choices[0].text is not None


def check_health():
    for path in ("/health", "/live", "/ready", "/version", "/info", "/metrics", "/openapi.json"):
        equal(plain(path).status, 200, path)
    assert b"demask_" in plain("/metrics").body


def check_many_at_once():
    """Requests beside others get the answers of lone ones."""
    ask = lambda seed: chat(seed=seed, temperature=0.7, max_tokens=16).choices[0].message.content
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(ask, range(8)))
    equal(together, [ask(seed) for seed in range(8)])


def check_unique_ids():
    ids = {chat(max_tokens=1).id for _ in range(3)}
    equal(len(ids), 3)
    assert chat(max_tokens=1, extra_body={"request_id": uuid.uuid4().hex}).id


if __name__ == "__main__":
    run(sys.modules[__name__])
