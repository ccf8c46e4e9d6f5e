"""Scenarios of a chat: how its text is shown, stopped, kept and written again."""

import time

from mock import CODE, SENTENCES
from reader import QUESTION, ask, choose_model, scenario
from selenium.webdriver.common.keys import Keys

@scenario("mock")
def stop_jumps_to_the_end_of_what_arrived(page, server):
    # Its answer has the most forwards: it is not over before it is stopped.
    choose_model(page, "mock-ar")
    for stop in [lambda: page.one("#text").send_keys(Keys.ESCAPE), lambda: page.one("#send").click()]:
        ask(page, "slow", pace="calm")
        page.until("return Number([...document.querySelectorAll('.scrubber')].at(-1).max) > 12", "forwards arrive")
        assert not whole(page), "the calm pace is as fast as the server"
        stop()
        page.until("return [...document.querySelectorAll('.status')].at(-1).textContent === 'stopped'", "it says so")
        page.until(WHOLE, "all that arrived is shown", 1)
        moment = page.all(".moment")[-1].text
        time.sleep(0.5)
        assert page.all(".moment")[-1].text == moment, "it goes on"


# Says whether the last forward that arrived is shown.
WHOLE = "const [, at, all] = /forward (\\d+) of (\\d+)/.exec([...document.querySelectorAll('.moment')].at(-1).textContent); return at === all"


def whole(page):
    return page.js(WHOLE)


@scenario("mock")
def ended_is_said_once_all_is_shown(page, server):
    page.send(QUESTION)
    page.until("return document.querySelector('.card')?.getAttribute('aria-busy') === 'false'", "the server is done")
    assert page.one(".card select").get_attribute("value") == "calm", "fast forwards are shown calmly"
    assert not whole(page) and page.one(".status").text == "showing …", page.one(".status").text
    assert page.one("#send").text == "Stop"
    page.one("#text").send_keys(Keys.ESCAPE)
    page.until(WHOLE, "escape shows all", 1)
    page.until("return document.querySelector('.status').textContent === 'ended by itself'", "it says so", 1)
    assert page.one("#send").text == "Send" and page.canvas() == SENTENCES
    page.one(".scrubber").send_keys(Keys.HOME)
    page.until("return document.querySelector('.moment').textContent.startsWith('forward 0 ')", "the beginning")
    assert page.one(".status").text == "ended by itself", "it has been seen to the end"


@scenario("mock")
def slow_forwards_are_shown_as_they_arrive(page, server):
    page.send("slow")
    page.until("return document.querySelector('.card select')?.value === 'live'", "80 ms a forward need no slower pace", 5)
    page.until(WHOLE, "all that arrived is shown", 2)
    page.pace("calm")
    time.sleep(0.5)
    assert page.one(".card select").get_attribute("value") == "calm", "the reader's choice is kept"
    page.one("#send").click()
    page.done()


@scenario("mock", "ordinary")
def an_ordinary_model_writes_without_masks(page, server):
    if server.mock:
        choose_model(page, "mock-ar")
    page.send("slow" if server.mock else QUESTION)
    page.until("return document.querySelectorAll('.token.settled').length > 3", "text is there", 5)
    assert page.one(".card select").get_attribute("value") == "live"
    seen = page.js("return [...document.querySelectorAll('.token.mask, .of-masks')].filter((each) => each.getClientRects().length > 0).length")
    assert seen == 0, f"{seen} masks can be seen"
    page.one("#text").send_keys(Keys.ESCAPE)
    page.done()
    assert page.canvas() != ""
    assert not server.mock or SENTENCES.startswith(page.canvas())


@scenario("mock")
def one_answer_at_a_time(page, server):
    ask(page, "slow")
    page.until("return document.querySelector('#send').textContent === 'Stop'", "the button stops")
    page.one("#text").send_keys("and?", Keys.ENTER)
    assert "An answer is being written" in page.one("#notice").text and len(page.all(".card")) == 1
    page.one("#send").click()
    page.done()
    page.until("return document.querySelector('#send').textContent === 'Send'", "the button sends")
    page.one("#send").click()
    page.until("return document.querySelectorAll('.card').length === 2", "the second question is sent")
    page.pace("live")
    page.done()


@scenario("mock")
def the_box_has_the_focus_at_load(page, server):
    assert page.js("return document.activeElement.id") == "text"


@scenario("mock")
def the_chat_outlives_a_reload(page, server):
    page.js("const system = [...document.querySelectorAll('#settings textarea')][0]; system.value = 'Be brief.'")
    for question in ["code, please", "slow"]:
        ask(page, question)
        if question == "slow":
            page.until("return [...document.querySelectorAll('.card')].at(-1).querySelectorAll('.token.settled').length > 3", "text is there")
        else:
            page.done()
    page.one("#text").send_keys("half a question")
    page.driver.refresh()
    page.until("return document.querySelectorAll('.card').length === 2", "both answers are back")
    page.done()
    assert page.canvas(0) == CODE and SENTENCES.startswith(page.canvas(1)[:10]), page.canvas(1)
    assert [each.text for each in page.all(".status")] == ["ended by itself", "stopped"], [[each.text for each in page.all(".status")], [each.text for each in page.all(".message")]]
    assert page.one("#settled").get_attribute("textContent") == "", "what was said is said again"
    assert page.one("#text").get_attribute("value") == "half a question"
    page.until("return !document.querySelector('#send').disabled", "the server is there")
    page.send("more")
    page.until("return document.querySelectorAll('.card').length === 3", "a third answer")
    page.pace("live")
    page.done()
    messages = server.mock.requests[-1][1]["messages"]
    assert [each["role"] for each in messages] == ["system", "user", "assistant", "user", "assistant", "user"], messages
    assert messages[0]["content"] == "Be brief." and messages[2]["content"] == CODE, messages
    page.click("New chat")
    page.driver.refresh()
    page.until("return document.querySelector('#settings .field') !== null", "the page is there")
    assert not page.all(".card")


@scenario("mock")
def what_there_is_no_room_for_is_left_out(page, server):
    for question in ["one", "two"]:
        ask(page, question)
        page.done()
    shorter = "value.length > sessionStorage.getItem(key).length - 100"
    for full, left in [("value.includes('\"top')", ["one", "two"]), (shorter, ["two"])]:
        page.js("""
        const set = Storage.prototype.setItem;
        Storage.prototype.setItem = function (key, value) {
          if (FULL) throw new DOMException("no room", "QuotaExceededError");
          return set.call(this, key, value);
        };
        """.replace("FULL", full))
        page.driver.refresh()
        page.until(f"return document.querySelectorAll('.card').length === {len(left)}", f"{left} are back")
        page.done()
        assert [each.text for each in page.all(".question")] == left
        assert page.canvas(-1) == SENTENCES
        page.all(".canvas-frame")[-1].send_keys(Keys.ARROW_RIGHT)
        assert "confidence" in page.one(".inspector").text and "weighed" not in page.one(".inspector").text


@scenario("mock")
def a_question_is_edited(page, server):
    for question in ["first", "second"]:
        ask(page, question)
        page.done()
    page.click("Edit", ".turn")
    assert page.one("#text").get_attribute("value") == "first"
    page.one("#text").send_keys(Keys.ESCAPE)
    assert page.one("#text").get_attribute("value") == "" and len(page.all(".card")) == 2
    page.click("Edit", ".turn")
    page.send("better")
    page.until("return document.querySelectorAll('.card').length === 1 && document.querySelector('.question').textContent === 'better'", "one turn is left")
    page.pace("live")
    page.done()
    assert [each["content"] for each in server.mock.requests[-1][1]["messages"]] == ["better"]


@scenario("mock", "full")
def the_newest_answer_is_written_again(page, server):
    for question in ["first", "short"] if server.mock else [QUESTION, QUESTION]:
        ask(page, question)
        page.done(60)
    shown = [each.is_displayed() for each in page.all(".actions button")]
    assert shown == [False, False, True, server.mock is not None], f"Regenerate and Continue of each answer: {shown}"
    page.js("window.old = [...document.querySelectorAll('.card')].at(-1)")
    page.click("Regenerate", ".card:last-child")
    page.until("return !window.old.isConnected && document.querySelectorAll('.card').length === 2", "it is asked again")
    page.pace("live")
    page.done(60)
    assert page.canvas().strip() and len(page.all(".question")) == 2
    if server.mock:
        (_, one, _), (_, two, _) = server.mock.requests[-2:]
        assert one["messages"] == two["messages"] and one["seed"] != two["seed"]


@scenario("mock")
def a_cut_answer_goes_on(page, server):
    ask(page, "short")
    page.done()
    assert page.one(".status").text == "ended at its length"
    page.click("Continue", ".card")
    page.until("return document.querySelectorAll('.card').length === 2", "a second card")
    page.pace("live")
    page.done()
    path, body, _ = server.mock.requests[-1]
    assert path == "/v1/completions" and body["prompt"] == "<user>short\n<assistant>" + SENTENCES, body
    assert page.canvas() == SENTENCES + SENTENCES
    page.send("and now?")
    page.until("return document.querySelectorAll('.card').length === 3", "a third card")
    page.pace("live")
    page.done()
    assert server.mock.requests[-1][1]["messages"][1]["content"] == SENTENCES + SENTENCES


@scenario("ordinary")
def a_cut_answer_goes_on_as_if_it_were_whole(page, server):
    ask(page)
    page.done(60)
    whole = page.canvas()
    page.click("New chat")
    length(page, 8)
    ask(page)
    page.done(60)
    assert page.one(".status").text == "ended at its length" and page.canvas() == whole[: len(page.canvas())]
    length(page, "")
    page.click("Continue", ".card")
    page.until("return document.querySelectorAll('.card').length === 2", "a second card")
    page.pace("live")
    page.done(60)
    assert page.canvas() == whole, (page.canvas(), whole)


def length(page, value):
    page.js("""
    const field = [...document.querySelectorAll("#settings .field")].find((each) => each.querySelector("label").textContent === "Length");
    field.querySelector("input").value = arguments[0];
    """, value)


@scenario("mock")
def the_text_is_followed_into_view(page, server):
    ask(page)
    page.done()
    foot = "document.querySelector('.controls').getBoundingClientRect().bottom <= document.querySelector('.ask').getBoundingClientRect().top"
    page.until(f"return {foot}", "what can be done with the answer is in sight", 2)
    page.click("New chat")
    choose_model(page, "mock-ar")
    page.send("long")
    newest = "[...document.querySelectorAll('.token.settled')].at(-1).getBoundingClientRect().bottom"
    page.until("return scrollY > 300", "the page scrolls")
    page.js("scrollTo(0, scrollY - 200)")
    time.sleep(0.2)
    there = page.js("return scrollY")
    page.until(f"return {newest} > innerHeight + 100", "the text goes on below")
    assert page.js("return scrollY") == there, "the page scrolled against the reader's will"
    page.js("scrollTo(0, document.documentElement.scrollHeight)")
    page.until("return document.querySelector('.card').getAttribute('aria-busy') === 'true'", "it still writes")
    there = page.js("return scrollY")
    page.until(f"return scrollY > {there} + 100", "a reader who came back follows again")
    assert page.js(f"return {newest}") < page.js("return innerHeight") + 100
    page.one("#send").click()
    page.done()


@scenario("mock")
def code_and_tables_are_monospace(page, server):
    page.js("document.querySelector('#text').value = arguments[0]", "```\ncode\n```\nhere")
    page.one("#text").send_keys(Keys.ENTER)
    page.until("return document.querySelector('.card')", "a card is there")
    page.pace("live")
    page.done()
    mono = page.js("return [...document.querySelectorAll('.token.mono')].map((each) => each.textContent).join('')")
    assert "x = 1" in mono and "y = 2" in mono and "| 1 | 2 |" in mono and "So" not in mono and "then" not in mono and "and" not in mono, mono
    families = page.js("return [...document.querySelectorAll('.token.mono, .question .mono')].map((each) => getComputedStyle(each).fontFamily)")
    assert all("monospace" in each for each in families), families
    assert page.js("return [...document.querySelectorAll('.question .mono')].map((each) => each.textContent).join('')") == "```\ncode\n```\n"


@scenario("mock", "full")
def examples_of_the_demo(page, server):
    if server.mock:
        assert not page.one("#examples").is_displayed() and not page.one("#demo-note").is_displayed()
        choose_model(page, "mock-demo")
    assert "knows nothing else" in page.one("#demo-note").text
    answers = []
    for number in range(3):
        page.click("New chat")
        assert len(page.all("#examples button")) == 3
        page.all("#examples button")[number].click()
        page.until("return document.querySelectorAll('.card').length === 1", "it is asked")
        page.pace("live")
        page.done(60)
        answers.append(page.canvas().replace("∎", "").strip().split()[-1])
    if not server.mock:
        assert answers == ["4", "32", "36"], answers
    ask(page)
    page.done(60)
    if server.mock:
        assert len(server.mock.requests[-1][1]["messages"]) == 1, "a demo knows no second turn"
