"""What scenarios have in common: how they are declared, and what a reader does in most of them."""

QUESTION = "Tara has 5 pens. Jack has 3 times as many and takes them all. Jack finds 9 pens. How many pens are there in the end?"
SCENARIOS = []


def scenario(*kinds):
    """A scenario, and the kinds of servers that it is run against: see `SERVERS` of run.py."""

    def add(function):
        SCENARIOS.append((function.__name__, function, kinds))
        return function

    return add


def ask(page, text=QUESTION, pace="live"):
    cards = len(page.all(".card"))
    page.send(text)
    page.until(f"return document.querySelectorAll('.card').length > {cards}", "a card is there")
    page.pace(pace)


def choose_model(page, name):
    page.js("const model = document.querySelector('#model'); model.value = arguments[0]; model.dispatchEvent(new Event('change'))", name)
