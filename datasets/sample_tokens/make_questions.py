"""Writes multiple-choice questions in the layout of MMLU: mmlu/dev/SUBJECT_dev.csv and mmlu/test/SUBJECT_test.csv.

    python3 datasets/sample_tokens/make_questions.py

Nothing in them is random: every run writes the same bytes.
"""

import csv
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "mmlu"
COUNTS = {"dev": 5, "test": 4}
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def addition(number):
    """Returns a question, its right answer and three wrong ones."""
    a, b = 3 + 7 * number % 20, 2 + 5 * number % 20
    return f"What is {a} plus {b}?", a + b, [a + b + 1, a + b + 10, abs(a - b)]


def letter_order(number):
    first = 3 * number % 20
    following = list(LETTERS[first : first + 6])
    question = f'Which letter follows "{following[0]}, {following[1]}, {following[2]}"?'
    return question, following[3], [following[4], following[5], following[0]]


def word_length(number):
    words = ["host", "plan", "worker", "record", "engine", "model", "case", "vendor", "batch"]
    word = words[number % len(words)]
    length = len(word)
    return f'How many letters has the word "{word}"?', length, [length - 1, length + 1, length + 2]


def rows(subject, first, count):
    """Yields the columns question, A, B, C, D and answer. The place of the right answer changes from row to row."""
    for number in range(first, first + count):
        question, right, choices = subject(number)
        place = 3 * number % 4
        choices.insert(place, right)
        yield [question, *choices, "ABCD"[place]]


def main():
    for subject in (addition, letter_order, word_length):
        first = 0
        for split, count in COUNTS.items():
            path = FOLDER / split / f"{subject.__name__}_{split}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w", encoding="utf-8", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows(rows(subject, first, count))
            first += count


main()
