"""Answers through Python are the binary's, however they are asked for."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import pickle
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import demask
import pytest
from conftest import QUESTION, ROOT, questions

DECODERS = {
    "full": ["static", "threshold:tau=0.9", "threshold:tau=0.7", "factor:f=1", "entropy_bounded:eb=0.35", "freedave:d=4", "slowfast"],
    "block": ["static", "threshold:tau=0.9", "entropy_bounded:eb=0.35", "freedave:d=4"],
    "causal": ["ar"],
}
CACHES = {"full": ["none", "prefix", "dual", "freecache:block=16", "dkv", "dllm"], "block": ["none", "block"], "causal": ["causal"]}
# What one run differs in from the next: the clock, and what memory happened to be free.
CHANGING = ("seconds", "memory")


def same(own: demask.Generation, other: dict[str, Any]) -> None:
    """Compares an answer with what the binary has printed."""
    mine = own.to_dict()
    receipts = [{name: value for name, value in one["receipt"].items() if name not in CHANGING} for one in (mine, other)]
    assert receipts[0] == receipts[1]
    for name in ("text", "tokens", "finish", "prompt_tokens", "generated_tokens"):
        assert mine[name] == other[name]


def test_five_lines_give_the_demos_answer() -> None:
    program = f"""import demask
with demask.demo() as engine:
    answer = engine.generate({QUESTION!r})
    print(answer)
    print(answer.nfe)"""
    assert len(program.splitlines()) == 5
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert told.stdout.startswith("3+4=7 pears.\nThe final answer is 7\n")


def runs(count: int) -> list[tuple[str, str, dict[str, Any]]]:
    """Returns random runs: a model, a question, options."""
    dice = random.Random(9)
    found = []
    for index in range(count):
        model, kind = dice.choice([("demo-llada", "full"), ("demo-dream", "full"), ("demo-sdar", "block"), ("demo-qwen", "causal")])
        decoder, cache = dice.choice(DECODERS[kind]), dice.choice(CACHES[kind])
        if decoder == "slowfast" and cache == "dkv":
            cache = "dual"
        options: dict[str, Any] = {"decoder": decoder, "cache": cache, "seed": dice.randrange(1000), "gen_length": 32}
        if kind == "full":
            options["block_length"] = 16
        if decoder.startswith("static") and dice.random() < 0.5:
            options["temperature"] = 0.5
        found.append((model, questions(50)[index % 50], options))
    return found


@pytest.mark.parametrize("count", [24, pytest.param(200, marks=pytest.mark.long)])
def test_tokens_nfe_and_receipts_are_the_binarys(binary: Callable[..., dict[str, Any]], count: int) -> None:
    engines: dict[str, demask.Model] = {}
    compared = 0
    for model, question, options in runs(count):
        if model not in engines:
            engines[model] = demask.load(ROOT / "demo" / model, threads=2, prefix_cache=0)
        flags = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        try:
            own = engines[model].generate(question, **options)
        except demask.errors.OptionsError as refused:
            with pytest.raises(subprocess.CalledProcessError) as error:
                binary("--model", str(ROOT / "demo" / model), "--threads", "2", *flags, question)
            # The binary says the same with flags for names.
            assert str(refused).split("`")[0].split(":")[0][:20] in error.value.stderr
            continue
        same(own, binary("--model", str(ROOT / "demo" / model), "--threads", "2", *flags, question))
        compared += 1
    for engine in engines.values():
        engine.close()
    assert compared > count * 3 // 4


def test_many_at_once_are_what_each_is_alone(engine: demask.Model) -> None:
    asked = questions(30)
    options = [{"seed": index, "temperature": 0.7} for index in range(30)]
    for batch in (1, 7):
        few = engine.generate(asked[:8], each=options[:8], decoder="static", cache="dual", batch=batch)
        assert [answer.tokens for answer in few] == [engine.generate(q, decoder="static", cache="dual", **o).tokens for q, o in zip(asked[:8], options[:8], strict=True)]
    together = engine.generate(asked, each=options, decoder="static", cache="dual")
    for question, own, answer in zip(asked, options, together, strict=True):
        assert engine.generate(question, decoder="static", cache="dual", **own).tokens == answer.tokens


def test_prompts_in_all_their_forms(engine: demask.Model) -> None:
    plain = engine.generate(QUESTION)
    conversation = [{"role": "user", "content": QUESTION}]
    text = engine.chat_template(conversation)
    for prompt in (conversation, demask.Raw(text), demask.Tokens(engine.tokenizer.encode(text)), demask.Tokens(plain.canvas[: plain.prompt_tokens])):
        assert engine.generate(prompt).tokens == plain.tokens
    assert engine.generate([conversation, QUESTION])[0].tokens == plain.tokens
    filled = engine.infill(["Ada has 3 pears. Ben gives Ada 4 more. 3+4=", demask.Hole(1), " pears."])
    assert filled.holes == engine.infill("Ada has 3 pears. Ben gives Ada 4 more. 3+4=<mask:1> pears.").holes
    assert len(filled.holes) == 1
    assert engine.generate([]) == []


def test_an_error_in_a_batch_is_its_own(engine: demask.Model) -> None:
    prompts = [QUESTION, demask.Tokens([10**6]), QUESTION]
    found = engine.generate(prompts, errors="return")
    assert isinstance(found[1], demask.errors.PromptError) and str(found[0]) == str(found[2])
    before = engine.metrics()["forwards"]
    with pytest.raises(demask.errors.PromptError, match="outside the vocabulary"):
        engine.generate(prompts)
    assert engine.metrics()["forwards"] == before, "nothing runs of a batch with a prompt that cannot be prepared"


def test_progress_is_told(engine: demask.Model) -> None:
    told: list[tuple[int, int]] = []
    engine.generate(questions(3), progress=lambda done, all_of_them: told.append((done, all_of_them)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_a_stream_is_the_answer_in_pieces(engine: demask.Model) -> None:
    alone = engine.generate(QUESTION, decoder="static")
    stream = engine.stream(QUESTION, decoder="static")
    updates = list(stream)
    assert stream.answer == alone or (stream.answer is not None and stream.answer.tokens == alone.tokens)
    assert "".join(update.text for update in updates) == alone.text
    first = updates[0].started
    assert first is not None and first.decoder == "static" and first.prompt_tokens == alone.prompt_tokens
    commits = [commit for update in updates for commit in update.commits]
    assert [alone.canvas[commit.position] for commit in commits] == [commit.token for commit in commits]
    assert max(update.nfe for update in updates) == alone.nfe
    assert list(stream) == [], "nothing behind the end"


def test_sixty_four_streams_and_threads_answer_as_alone(engine: demask.Model) -> None:
    asked = questions(64)
    alone = [engine.generate(question, decoder="static", cache="dual").tokens for question in asked]

    async def one(question: str) -> list[int]:
        stream = engine.astream(question, decoder="static", cache="dual")
        async for _ in stream:
            pass
        assert stream.answer is not None
        return stream.answer.tokens

    async def all_of_them() -> list[list[int]]:
        return await asyncio.gather(*[one(question) for question in asked])

    found: dict[int, list[int]] = {}

    def ask(index: int) -> None:
        found[index] = engine.generate(asked[index], decoder="static", cache="dual").tokens

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(0, 64, 4)]
    for thread in threads:
        thread.start()
    before = engine.metrics()["networks"][0]
    assert asyncio.run(all_of_them()) == alone
    for thread in threads:
        thread.join()
    assert all(alone[index] == tokens for index, tokens in found.items()) and len(found) == 16
    after = engine.metrics()["networks"][0]
    assert after["groups"] - before["groups"] > 4 * (after["forwards"] - before["forwards"]), "forwards are shared"


def test_answers_print_pickle_and_draw(engine: demask.Model) -> None:
    answer = engine.generate(QUESTION, decoder="static")
    copy = pickle.loads(pickle.dumps(answer))
    assert copy == answer and copy.receipt == answer.receipt and copy._repr_html_() == answer._repr_html_()
    assert str(answer) == answer.text and repr(answer).startswith("Generation(text='3+4=7 pears.")
    assert json.loads(answer.to_json()) == answer.to_dict()
    drawn = answer._repr_html_()
    assert drawn.count('class="token"') == answer.generated_tokens and "<script" not in drawn and "http" not in drawn
    filled = engine.infill(["3+4=", demask.Hole(1), " pears."])._repr_html_()
    assert filled.count('class="token"') == 1 and '<span class="prompt"> pears</span>' in filled, "what was given looks given on both sides"
    hostile = engine.generate(demask.Raw("<script>alert(1)</script>"), gen_length=16)._repr_html_()
    assert "<script" not in hostile


def test_all_commits_are_told_however_late_somebody_waits(engine: demask.Model) -> None:
    import time

    for pause in (0.0, 0.0005, 0.002, 0.01, 0.05):
        ticket = engine._native.submit(("chat", [("user", QUESTION)]), {"decoder": "static", "cache": "dual"})
        time.sleep(pause)
        answer = demask.Generation(ticket.answer())
        assert sorted(commit.position for commit in answer.commits) == sorted({commit.position for commit in answer.commits})
        assert len(answer.commits) >= answer.generated_tokens
        assert all(answer.canvas[commit.position] == commit.token for commit in answer.commits)


def test_logprobs_and_chat(engine: demask.Model) -> None:
    answer = engine.generate(QUESTION, top_logprobs=2)
    assert answer.logprobs is not None and len(answer.logprobs) == len(answer.tokens)
    assert answer.logprobs[0].top[0][0] == answer.tokens[0]
    chat = demask.Chat(engine, gen_length=32)
    assert str(chat.say(QUESTION)) == "3+4=7 pears.\nThe final answer is 7" and len(chat.messages) == 2
    stream = chat.stream(QUESTION)
    assert len(chat.messages) == 2
    list(stream)
    assert len(chat.messages) == 4
    chat.reset()
    assert chat.messages == []


def test_a_system_message_is_a_keyword(engine: demask.Model) -> None:
    conversation = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]
    expected = engine.generate(conversation)
    assert engine.generate(QUESTION, system="Be brief.").tokens == expected.tokens
    assert engine.generate(QUESTION, system="Be brief.").usage.prompt_tokens > engine.generate(QUESTION).usage.prompt_tokens
    stream = engine.stream(QUESTION, system="Be brief.")
    assert "".join(str(update) for update in stream) and stream.answer is not None
    assert stream.answer.tokens == expected.tokens
    [one, other] = engine.generate([QUESTION, QUESTION], each=[{"system": "Be brief."}, {"system": None}])
    assert (one.tokens, other.tokens) == (expected.tokens, engine.generate(QUESTION).tokens)
    for prompt in (demask.Raw(QUESTION), demask.Tokens([5, 6]), conversation):
        with pytest.raises(demask.errors.PromptError, match="system goes before a text"):
            engine.generate(prompt, system="Be brief.")  # type: ignore[arg-type]


def test_a_temperature_without_a_seed_draws_one_and_the_receipt_says_which(engine: demask.Model) -> None:
    answers = engine.generate([QUESTION] * 8, temperature=1.5)
    seeds = {answer.receipt["seed"] for answer in answers}
    assert len(seeds) == 8
    again = engine.generate(QUESTION, temperature=1.5, seed=answers[0].receipt["seed"])
    assert again.tokens == answers[0].tokens
    assert engine.generate(QUESTION).receipt["seed"] == 0
    llm = demask.LLM("demo")
    [drawn] = llm.generate(QUESTION, demask.SamplingParams(n=2, temperature=1.5, max_tokens=16))
    assert len({output.generation.receipt["seed"] for output in drawn.outputs}) == 2
    [named] = llm.generate(QUESTION, demask.SamplingParams(n=2, temperature=1.5, max_tokens=16, seed=5))
    assert [output.generation.receipt["seed"] for output in named.outputs] == [5, 6]


def test_the_shape_of_vllm(engine: demask.Model) -> None:
    llm = demask.LLM("demo")
    [found] = llm.chat([{"role": "user", "content": QUESTION}], demask.SamplingParams(n=2, max_tokens=32, diffusion={"decoder": "static"}))
    assert [one.text for one in found.outputs] == ["3+4=7 pears.\nThe final answer is 7"] * 2
    assert found.outputs[0].finish_reason == "stop" and found.outputs[1].index == 1
    prompt = engine.chat_template([{"role": "user", "content": QUESTION}])
    [stopped] = llm.generate(prompt, demask.SamplingParams(stop_token_ids=[found.outputs[0].token_ids[1]]))
    assert stopped.outputs[0].stop_reason == found.outputs[0].token_ids[1] and stopped.outputs[0].finish_reason == "stop"
    [stopped] = llm.generate(prompt, demask.SamplingParams(stop="pears"))
    assert stopped.outputs[0].stop_reason == "pears"
    usual = found.outputs[0].token_ids
    for given in ({"repetition_penalty": 3.0}, {"logit_bias": {usual[0]: -100}}, {"bad_words": ["pears"]}):
        [other] = llm.generate(prompt, demask.SamplingParams(max_tokens=32, **given))
        assert other.outputs[0].token_ids != usual, given
    [longest] = llm.generate(prompt, demask.SamplingParams(max_tokens=24, min_tokens=24))
    assert len(longest.outputs[0].token_ids) == 24 and longest.outputs[0].finish_reason == "length"
    with pytest.raises(TypeError, match="length_penalty"):
        demask.SamplingParams(length_penalty=2.0)
    continued = llm.generate([prompt, {"prompt_token_ids": found.prompt_token_ids}])
    assert [one.outputs[0].text for one in continued] == [found.outputs[0].text] * 2
    assert continued[0].prompt == prompt
    llm.model.close()


def test_a_habit_of_4096_tokens_changes_no_answer(engine: demask.Model) -> None:
    usual = engine.generate(QUESTION)
    assert engine.generate(QUESTION, max_tokens=4096).tokens == usual.tokens
    assert engine.generate(QUESTION, max_tokens=5).tokens != usual.tokens
    assert len(engine.generate(QUESTION, max_tokens=5, ignore_eos=True).tokens) == 5
    both = engine.generate(QUESTION, max_tokens=5, gen_length=64, block_length=16)
    assert both.tokens == usual.tokens[:5] and both.finish_reason == "length"
    assert "`max_tokens`" in both.receipt["more"]
    llm = demask.LLM("demo")
    chat = [{"role": "user", "content": QUESTION}]
    for bound in (64, 4096):
        [found] = llm.chat(chat, demask.SamplingParams(max_tokens=bound))
        assert found.outputs[0].token_ids == usual.tokens
    llm.model.close()


def test_fields_of_messages_reach_the_template(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(ROOT / "demo/demo-qwen", folder)
    template = "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}[{{ m.reasoning_content }}]{% endif %}{{ m.content }}{% endfor %}"
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    said = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "reasoning_content": "because"}]
    with demask.load(folder) as own:
        assert own.chat_template(said) == "<user>q<assistant>[because]a"
        with pytest.raises(TypeError, match="no form in JSON"):
            own.generate([{"role": "user", "content": "q", "x": {1}}])


def test_activations_are_read_by_their_documented_names() -> None:
    for name in ("auto", "plain"):
        with demask.demo(activations=name) as own:
            assert str(own.generate(QUESTION)).startswith("3+4=7")
    with pytest.raises(demask.errors.OptionsError, match="auto, plain"):
        demask.demo(activations="fp8")


@pytest.mark.skipif(not os.environ.get("DEMASK_BINARY"), reason="DEMASK_BINARY does not name the demask binary")
def test_costs_and_the_doctor_are_the_binarys(engine: demask.Model) -> None:
    path = os.environ["DEMASK_BINARY"]
    lab = pathlib.Path(path).with_name("demask-lab")
    told = subprocess.run([lab, "cost", "--json", "--like", "llada-8b", "--decoder", "static"], capture_output=True, text=True, check=True)
    theirs = json.loads(told.stdout)
    assert theirs.pop("machine").keys() == {"tflops", "gbs"}, "what the program measures beside it"
    assert demask.cost(like="llada-8b", decoder="static") == theirs
    told = subprocess.run([lab, "cost", "--json", "--prompt-length", "64"], capture_output=True, text=True, check=True)
    theirs = json.loads(told.stdout)
    # The better case beside the worst one is the program's, too.
    del theirs["machine"], theirs["hoped"]
    assert engine.cost(64) == theirs
    told = subprocess.run([path, "doctor", "--json"], capture_output=True, text=True, check=True)
    found = demask.doctor()
    assert found.keys() == json.loads(told.stdout).keys() and found["defaults"] == json.loads(told.stdout)["defaults"]


def test_traces(engine: demask.Model, tmp_path: Any) -> None:
    trace = engine.trace(QUESTION, decoder="freedave:d=4", cache="none", drafts=True, predictions=True)
    assert trace.answer is not None and trace.answer.tokens == engine.generate(QUESTION, decoder="freedave:d=4", cache="none").tokens
    assert {"header", "draft", "target", "predictions", "step"} <= {line.get("event") for line in trace.lines}
    trace.save(tmp_path / "trace.jsonl")
    assert demask.Trace.load(tmp_path / "trace.jsonl").lines == trace.lines
    columns = trace.to_numpy()
    assert len(columns["step"]) == len(trace.commits) and columns["confidence"].dtype == "float32"
    last = list(trace.frames())[-1]
    first = len(trace.header["prompt"])
    assert [trace.answer.canvas[first + i] for i, token in enumerate(last.canvas) if token is not None] == [t for t in last.canvas if t is not None]
    assert "The final answer is 7" in last.text and "<script" not in trace._repr_html_()
    path = os.environ.get("DEMASK_BINARY")
    lab = pathlib.Path(path or "demask").with_name("demask-lab")
    if path:
        subprocess.run([lab, "trace", "--speed", "10000", str(tmp_path / "trace.jsonl")], check=True, capture_output=True)
    for text, told in [("hello", "line 1 of the trace"), ("", "does not start with a header"), ('{"event":"header","version":9}', "update demask")]:
        with pytest.raises(demask.Error, match=told):
            demask.Trace.parse(text)


def test_scores_logits_and_hidden_states(engine: demask.Model) -> None:
    import numpy

    right, wrong = (engine.score(QUESTION, text, draws=32) for text in ("3+4=7 pears.", "3+4=9 pears."))
    assert right.log_probability > wrong.log_probability and right.tokens > 0 and right.per_token > wrong.per_token
    ids = numpy.array(engine.tokenizer.encode("Ada has 3 pears."), dtype=numpy.int64)
    logits, hidden = engine.logits(ids), engine.hidden(ids, "final")
    assert logits.shape == (len(ids), engine.info["vocabulary"]) and logits.dtype == numpy.float32 and logits.flags.writeable
    assert hidden.shape == (len(ids), engine.info["hidden"])
    assert numpy.array_equal(numpy.from_dlpack(logits), logits)
    assert not numpy.array_equal(engine.hidden(ids, 0), engine.hidden(ids, engine.info["layers"] - 1))
    with pytest.raises(IndexError, match="expected one from 0 to"):
        engine.hidden(ids, 99)


def test_the_probability_of_a_no_is_its_confidence_to_the_last_bit() -> None:
    from demask._decision import decisions

    answer = {"type": "predicate", "name": None, "choice": False, "probability": 0.4999818801879962, "mass": 1.0}
    costs = {"input_tokens": 1, "cached_tokens": 0, "forwards": 1, "flops": 1.0, "seconds": 1.0}
    answer["confidence"] = 0.5000181198120038
    assert 1.0 - 0.4999818801879962 != answer["confidence"]
    found = decisions(json.dumps({"answers": [answer], **costs})).answers[0]
    assert found.probabilities == {True: 0.4999818801879962, False: found.confidence}


def test_decisions_are_the_servers(engine: demask.Model) -> None:
    questions: list[dict[str, Any]] = [
        {"type": "choice", "name": "sum", "instructions": "3+4=7 pears.\nThe final answer is", "choices": ["9", "7"]},
        {"type": "predicate", "instructions": "Is it 7?"},
        {"type": "score", "instructions": "The final answer is", "min": 6, "max": 8},
        {"type": "score", "instructions": "How many?", "levels": ["few", "many"]},
    ]
    found = engine.decide(QUESTION, questions)
    first, right, score, levels = found.answers
    assert (first.type, first.name, first.choice) == ("choice", "sum", "7")
    assert first.confidence == first.probabilities["7"] > 0.9 and first.mass > 0.9
    assert right.probabilities.keys() == {True, False} and right.confidence == right.probabilities[bool(right.choice)]
    assert score.score is not None and 6 <= score.score <= 8 and list(score.probabilities) == [6, 7, 8]
    assert list(levels.probabilities) == [0, 1] and first.score is None
    for answer in found.answers:
        assert 0 < answer.mass <= 1 and abs(sum(answer.probabilities.values()) - 1) < 1e-9
    assert engine.decide(QUESTION, iter(questions)).answers == found.answers

    async def served() -> dict[str, Any]:
        body = json.dumps({"input": QUESTION, "questions": questions}).encode()
        response = await engine.http("POST", "/v1/decisions", {"content-type": "application/json"}, body)
        told: dict[str, Any] = json.loads(await response.read())
        return told

    told = asyncio.run(served())
    assert [answer["choice"] for answer in told["answers"]] == [answer.choice for answer in found.answers]
    assert [answer["mass"] for answer in told["answers"]] == [answer.mass for answer in found.answers]
    assert told["usage"]["input_tokens"] == found.input_tokens and told["forwards"] == found.forwards


def test_usage_is_the_servers(engine: demask.Model) -> None:
    async def served(path: str, asked: dict[str, Any]) -> dict[str, Any]:
        response = await engine.http("POST", path, {"content-type": "application/json"}, json.dumps(asked).encode())
        found: dict[str, Any] = json.loads(await response.read())
        return found

    def told(usage: demask.types.Usage) -> dict[str, Any]:
        return usage._asdict() | {"prompt_tokens_details": usage.prompt_tokens_details._asdict()}

    mine = engine.generate(QUESTION)
    other = asyncio.run(served("/v1/chat/completions", {"messages": [{"role": "user", "content": QUESTION}]}))
    assert other["usage"].pop("tokens_per_second") > 0, "a time, and no count"
    assert told(mine.usage) == other["usage"]
    assert mine.finish_reason == other["choices"][0]["finish_reason"] == "stop"
    assert mine.usage.total_tokens == mine.prompt_tokens + mine.generated_tokens


def test_the_tokens_of_a_filled_text_are_those_in_its_holes(engine: demask.Model, binary: Callable[..., dict[str, Any]]) -> None:
    text = "Ada has 3 pears. Ben gives Ada 4 more. 3+4=<mask:1> pears."
    filled, other = engine.infill(text), binary("--infill", text)
    assert filled.generated_tokens == filled.usage.completion_tokens == 1 == other["generated_tokens"]
    assert filled.usage.prompt_tokens == len(filled.canvas) - 1


def test_a_prompts_cached_tokens_are_counted() -> None:
    with demask.load(ROOT / "demo/demo-qwen", threads=1) as model:
        first, again = model.generate(QUESTION), model.generate(QUESTION)
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    assert 0 < again.usage.prompt_tokens_details.cached_tokens == again.receipt["cached_tokens"]


def test_a_model_is_loaded_under_the_usual_name() -> None:
    with demask.Model.from_pretrained(ROOT / "demo/demo-llada", threads=1) as model:
        assert isinstance(model, demask.Model)
        assert repr(model) == f"<demask.Model demo-llada, {model.info['device']}>"
        with pytest.raises(TypeError, match="thread"):
            demask.Model.from_pretrained(ROOT / "demo/demo-llada", thread=1)  # type: ignore[call-arg]


def test_a_text_is_a_message_and_to_vllms_interface_a_text(engine: demask.Model, binary: Callable[..., dict[str, Any]]) -> None:
    llm = demask.LLM("demo")
    chosen = demask.SamplingParams(max_tokens=32)
    assert engine.generate(QUESTION).text == binary(QUESTION)["text"]
    [raw] = llm.generate(QUESTION, chosen)
    assert raw.outputs[0].token_ids == engine.generate(demask.Raw(QUESTION), max_tokens=32).tokens
    assert raw.prompt_token_ids != engine.generate(QUESTION).canvas[: engine.generate(QUESTION).prompt_tokens]
    llm.model.close()


@pytest.mark.parametrize(("name", "decoder"), [("demo-llada", "static"), ("demo-sdar", "static"), ("demo-qwen", "ar")])
def test_a_canvas_moves_to_the_answers(name: str, decoder: str) -> None:
    with demask.load(ROOT / "demo" / name, threads=1) as model:
        canvas, shown = demask.Canvas(model), []
        stream = model.stream(QUESTION, decoder=decoder, ignore_eos=True, gen_length=128)
        for update in stream:
            canvas.add(update)
            shown.append(canvas.html())
        assert stream.answer is not None
        assert canvas.tokens == stream.answer.canvas
        assert len(set(shown)) > 1 and not any("<script" in one for one in shown)


def test_a_canvas_of_a_text_with_holes_fills_them(engine: demask.Model) -> None:
    canvas = demask.Canvas(engine)
    stream = engine.stream(demask.Infill("Ada has 3 pears. Ben gives Ada 4 more. 3+4=<mask:1> pears."))
    for update in stream:
        canvas.add(update)
        if update.started is not None:
            assert canvas.tokens.count(None) <= 1
    assert stream.answer is not None and canvas.tokens == stream.answer.canvas and "NFE" in canvas.html()


class Count:
    """What a model of pydantic has."""

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        pears = {"type": "integer", "minimum": 0, "maximum": 20}
        return {"type": "object", "properties": {"pears": pears}, "required": ["pears"]}


@pytest.mark.parametrize("schema", [Count, Count.model_json_schema(), json.dumps(Count.model_json_schema())])
def test_answers_are_valid_under_a_schema_however_it_is_given(schema: Any) -> None:
    with demask.demo() as model:
        found = model.generate(QUESTION, json_schema=schema)
        assert 0 <= json.loads(found.text or "")["pears"] <= 20
        assert found.receipt["constraint"]["kind"] == "json_schema"
        assert model.generate(QUESTION, choice=["yes", "no"]).text in ("yes", "no")
        with pytest.raises(demask.errors.OptionsError, match="json_schema"):
            model.generate(QUESTION, json_schema={"not": {}})
