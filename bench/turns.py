"""Subjects that take turns, and what their turns say: medians, quartiles, ratios of the same round with their interval."""

import math
import statistics

# Student's t for 95 %, by degrees of freedom from 1 on.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131, 2.12)
STUDENT += (2.11, 2.101, 2.093, 2.086, 2.08, 2.074, 2.069, 2.064, 2.06, 2.056, 2.052, 2.048, 2.045, 2.042)


def in_turns(subjects, rounds, warm=0, done=None, keep=lambda turns: None):
    """What each subject's turns return, by name.

    In every other round the last one begins, so that what else the machine does falls on all alike. Rounds before the first
    (`warm`) are not counted; turns in `done` are not run again.
    """
    turns = {name: list((done or {}).get(name, [])) for name in subjects}
    if all(len(of_one) >= rounds for of_one in turns.values()):
        return turns
    for number in range(-warm, rounds):
        for name in list(subjects) if number % 2 == 0 else list(subjects)[::-1]:
            if number < 0:
                subjects[name]()
            elif number >= len(turns[name]):
                turns[name].append(subjects[name]())
                keep(turns)
    return turns


def spread(values):
    """Median, quartiles and ends of values, and themselves."""
    low, high = values[0], values[0]
    if len(values) > 1:
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    found = {"median": statistics.median(values), "quartiles": [low, high], "least": min(values), "most": max(values)}
    return found | {"values": values}


def ratio(values, base):
    """Spread of the ratios of two subjects in the same rounds, and the interval that holds their mean with 95 %."""
    ratios = [one / other for one, other in zip(values, base, strict=True)]
    found = spread(ratios)
    if len(ratios) > 1:
        freedom = len(ratios) - 1
        student = STUDENT[freedom - 1] if freedom <= len(STUDENT) else 1.96 + 2.4 / freedom
        half = student * statistics.stdev(ratios) / math.sqrt(len(ratios))
        found["interval"] = [statistics.mean(ratios) - half, statistics.mean(ratios) + half]
    return found


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def figures(of_one):
    """Values of each figure that every turn of a subject has, in the order of the turns."""
    known = [name for name in of_one[0] if all(is_number(turn.get(name)) for turn in of_one)]
    return {name: [turn[name] for turn in of_one] for name in known}


def summary(turns, over=()):
    """Of subjects' turns, each a dictionary: spreads of figures, ratios over the subjects that they are compared with, facts.

    `over` has pairs: a subject, and the one that it is compared with. What is no number is a fact, as the last turn has it.
    """
    values = {name: figures(of_one) for name, of_one in turns.items()}
    found = {}
    for name, of_one in turns.items():
        facts = {key: value for key, value in of_one[-1].items() if value is not None and not is_number(value)}
        found[name] = {"figures": {key: spread(given) for key, given in values[name].items()}, "facts": facts}
        for other in [base for subject, base in over if subject == name and base in values and base != name]:
            both = [key for key in values[name] if all(value > 0 for value in values[other].get(key, [0]))]
            found[name].setdefault("over", {})[other] = {key: ratio(values[name][key], values[other][key]) for key in both}
    return found


def unlike(turns, same):
    """What says that subjects did other work: figures that must be the same, and are not."""
    told = []
    for key in same:
        seen = {name: [turn.get(key) for turn in of_one] for name, of_one in turns.items()}
        first, *others = [name for name, given in seen.items() if any(value is not None for value in given)] or [None]
        for name in others:
            if set(map(str, seen[name])) != set(map(str, seen[first])):
                told.append(f"{key} of {first} is {seen[first][-1]}, of {name} {seen[name][-1]}: not the same work")
    return told
