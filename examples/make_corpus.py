# SPDX-License-Identifier: Apache-2.0
"""Writes corpus.txt, the text the demo learns: the log book of a small harbour.

Sentences come from a few dozen phrases and a fixed seed, so the file can be made again:
    python -m examples.make_corpus
"""

import random
from pathlib import Path

BOATS = "Heron|Old Lantern|Marigold|North Star|Tern|Blue Kettle|Windfall|Patience".split("|")
PEOPLE = "the pilot|the cooper|the ropemaker|the harbour master|the cook|the mate".split("|")
GOODS = "salt|timber|lamp oil|barley|wool|iron nails|dried fish|pitch|sailcloth".split("|")
PLACES = "the long pier|the east quay|the slipway|the customs house|the light".split("|")
WEATHER = "fog until noon|a steady west wind|rain and a low sky|clear and cold|a heavy swell".split(
    "|"
)
VERBS = "unloaded|weighed|counted|stowed|traded away|lost overboard|covered with canvas".split("|")
PATTERNS = [
    "The {boat} came in on the {tide} tide with {n} barrels of {goods}.",
    "{Person} {verb} {n} crates of {goods} at {place}.",
    "At {place} {person} spoke with {person2} about the price of {goods}.",
    "The {boat} lay at {place} and waited for {person}.",
    "Nobody saw the {boat} leave, but {person} heard her bell.",
    "{Person} asked for {n} fathoms of rope and paid in {goods}.",
    "When the wind turned, the {boat} and the {boat2} changed places at {place}.",
]
DAYS = 300


def sentence(rng: random.Random) -> str:
    person, person2 = rng.sample(PEOPLE, 2)
    boat, boat2 = rng.sample(BOATS, 2)
    return rng.choice(PATTERNS).format(
        boat=boat,
        boat2=boat2,
        person=person,
        Person=person.capitalize(),
        person2=person2,
        goods=rng.choice(GOODS),
        place=rng.choice(PLACES),
        verb=rng.choice(VERBS),
        tide=rng.choice(["morning", "evening"]),
        n=rng.randint(2, 40),
    )


def corpus() -> str:
    rng = random.Random(1895)
    pages = []
    for day in range(1, DAYS + 1):
        body = " ".join(sentence(rng) for _ in range(4))
        pages.append(f"Day {day}: {rng.choice(WEATHER)}. {body}\n")
    return "".join(pages)


if __name__ == "__main__":
    Path(__file__).with_name("corpus.txt").write_text(corpus(), encoding="ascii")
