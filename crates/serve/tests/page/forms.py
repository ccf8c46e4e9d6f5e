"""Scenarios of the form that an answer is to have: how it is typed, refused, sent, and seen in the answer."""

import json

from mock import FORMED
from reader import QUESTION, ask, scenario
from selenium.webdriver.common.keys import Keys

SCHEMA = {"type": "object", "properties": {"pears": {"type": "integer", "minimum": 0, "maximum": 20}}, "required": ["pears"]}


def write_form(page, kind, text):
    page.js("const kind = document.querySelector('#form-kind'); kind.value = arguments[0]; kind.dispatchEvent(new Event('change'))", kind)
    box = page.one("#form")
    box.clear()
    box.send_keys(text)


def fault(page):
    return page.one("#form-fault").text


@scenario("mock", "full")
def an_answer_has_its_form_and_shows_what_that_changed(page, server):
    assert not page.one("#form").is_displayed(), "nothing is asked for by itself"
    write_form(page, "json", json.dumps(SCHEMA))
    assert page.one("#form-label").text == "JSON schema" and page.js("return document.activeElement.id") == "form"
    ask(page)
    page.done(60)
    found = json.loads(page.canvas().replace("∎", ""))
    assert 0 <= found["pears"] <= 20, found
    assert page.all(".token.forced") and page.all(".token.changed"), page.js("return document.querySelector('.canvas').innerHTML")
    legend = page.one(".legend").text
    assert "forced by the form" in legend and "changed by it" in legend, legend
    if server.mock:
        _, body, _ = server.mock.requests[-1]
        assert body["structured_outputs"] == {"json": SCHEMA} and page.canvas() == FORMED, body
    said = said_of_each(page)
    assert any(each.endswith("forced: the form leaves no choice.") for each in said), said
    assert any("changed by the form" in each and "confidence" in each for each in said), said


def said_of_each(page):
    """What screen readers hear of each token, by keys alone."""
    page.one(".canvas-frame").send_keys(Keys.HOME)
    said = []
    for _ in range(40):
        said.append(page.js("return document.querySelector('#voice').textContent"))
        page.one(".canvas-frame").send_keys(Keys.ARROW_RIGHT)
        if said[-1] == page.js("return document.querySelector('#voice').textContent"):
            return said
    return said


@scenario("mock")
def marks_of_a_form_survive_a_trace(page, server):
    write_form(page, "choice", "yes\n\nno")
    ask(page)
    page.done()
    assert server.mock.requests[-1][1]["structured_outputs"] == {"choice": ["yes", "no"]}, server.mock.requests[-1][1]
    marks = "return [...document.querySelectorAll('.token')].map((each) => [each.matches('.forced'), each.matches('.changed')])"
    before = page.js(marks)
    page.click("Save trace", ".card")
    file = page.saved()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert sum(bool(line.get("forced")) for line in lines) == sum(forced for forced, _ in before) > 0, lines
    assert sum(bool(line.get("changed")) for line in lines) == sum(changed for _, changed in before) > 0, lines
    page.click("New chat")
    page.one("#file").send_keys(str(file))
    page.until("return document.querySelectorAll('.card').length === 1", "the trace is there")
    page.pace("live")
    page.done()
    assert page.js(marks) == before
    file.unlink()


@scenario("mock", "full")
def a_form_is_refused_where_it_was_typed(page, server):
    asked = len(server.mock.requests) if server.mock else 0
    for kind, text, told in [("json", '{"type": ', "The schema is no JSON: "), ("choice", " ", "There is no form yet")]:
        write_form(page, kind, text)
        page.send(QUESTION)
        assert fault(page).startswith(told), fault(page)
        assert not page.all(".card") and page.js("return document.activeElement.id") == "form"
        assert page.one("#form").get_attribute("aria-invalid") == "true"
        assert "form-fault" in page.one("#form").get_attribute("aria-describedby")
    assert not server.mock or len(server.mock.requests) == asked, "it was sent"
    write_form(page, "regex", "a(b")
    assert fault(page) == "" and page.one("#form").get_attribute("aria-invalid") is None
    ask(page)
    page.until("return document.querySelector('#form-fault').textContent", "the server refuses it")
    assert "regex" in fault(page) and fault(page).endswith("(structured_outputs.regex)"), fault(page)
    assert page.one(".message").text == fault(page)
    page.one("#form").send_keys(")")
    assert fault(page) == "" and page.one("#form").get_attribute("aria-invalid") is None
    write_form(page, "json", '{"type": "object", "properties": {"a": {"multipleOf": 0.3, "type": "number"}}, "required": ["a"]}')
    ask(page)
    page.until("return document.querySelector('#form-fault').textContent", "the server refuses it")
    assert "properties/a" in fault(page) and "multipleOf" in fault(page), fault(page)
    # Any text is asked for again.
    page.js("const kind = document.querySelector('#form-kind'); kind.value = ''; kind.dispatchEvent(new Event('change'))")
    ask(page)
    page.done(60)
    assert not page.all(".message:not([hidden])")[2:] and not page.all(".token.forced")


@scenario("mock")
def a_form_is_for_whole_answers_and_outlives_a_reload(page, server):
    write_form(page, "regex", "[0-9]+")
    page.driver.refresh()
    page.until("return document.querySelector('#settings .field') !== null", "the page is there")
    assert page.one("#form-kind").get_attribute("value") == "regex" and page.one("#form").get_attribute("value") == "[0-9]+"
    page.until("return !document.querySelector('#send').disabled", "the server is there")
    for mode, text in [("raw", "short"), ("infill", "a [[2]] b"), ("chat", "short")]:
        page.mode(mode)
        ask(page, text)
        page.done()
        assert server.mock.requests[-1][1]["structured_outputs"] == {"regex": "[0-9]+"}, mode
    # What goes on with an answer is a part of one.
    page.click("Continue")
    page.until("return [...document.querySelectorAll('.card-title')].at(-1).textContent === 'Continued'", "it goes on")
    page.done()
    assert "structured_outputs" not in server.mock.requests[-1][1]
