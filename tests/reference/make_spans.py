"""Writes spans.json: random windows with logits, the best answer to each question, and torchmetrics' figures of SQuAD 1.1
for these answers. Needs NumPy, torch and torchmetrics 1.9.0.

    python tests/reference/make_spans.py

`best_answer` chooses as `postprocess_qa_predictions` of transformers' question-answering example does by default.
"""

import json
from pathlib import Path

import numpy as np
from torchmetrics.functional.text import squad

LENGTH = 40
WINDOW = 28
STRIDE = 12
WORDS = (
    "the a an The An A river tower's cat-like Paris, 1889 (the engineer) Zoë naïve “quoted” U.S. and-the theatre of "
    "in; twenty-one $5.00 a's königreich it's"
).split()


def best_answer(context, windows, candidates=20, longest=30):
    best = (-np.inf, "empty")
    for window in windows:
        starts, ends = (np.array(window[name], dtype=np.float32) for name in ("start", "end"))
        characters = window["characters"]
        for start in np.argsort(starts)[-candidates:]:
            for end in np.argsort(ends)[-candidates:]:
                if characters[start] and characters[end] and start <= end < start + longest:
                    text = context[characters[start][0] : characters[end][1]]
                    best = max(best, (starts[start] + ends[end], text), key=lambda one: one[0])
    return best[1]


def make_question(rng, index):
    count = int(rng.integers(10, 60))
    words = [WORDS[i] for i in rng.integers(0, len(WORDS), count)]
    context = " ".join(words)
    tokens, at = [], 0
    for word in words:
        # Some words are two tokens.
        cut = len(word) // 2 if len(word) > 4 else 0
        tokens += [(at, at + cut), (at + cut, at + len(word))] if cut else [(at, at + len(word))]
        at += len(word) + 1
    # Every answer has a word besides articles: for others, torchmetrics follows the evaluation of version 2.
    has_word = lambda text: any(word.lower() not in ("a", "an", "the") for word in text.split())
    text = ""
    while not has_word(text):
        first = int(rng.integers(0, len(tokens) - 3))
        answer = (tokens[first][0], tokens[min(first + int(rng.integers(0, 4)), len(tokens) - 1)][1])
        text = context[answer[0] : answer[1]]
    others = list(filter(has_word, WORDS))
    answers = [text] + [others[int(rng.integers(0, len(others)))] for _ in range(int(rng.integers(0, 3)))]
    windows = []
    for begin in range(0, len(tokens), STRIDE):
        part = tokens[begin : begin + WINDOW]
        question_tokens = 4
        characters = [None] * question_tokens + part + [None] * (LENGTH - question_tokens - len(part))
        start, end = (np.round(rng.normal(0, 1, LENGTH), 4) for _ in range(2))
        for place, token in enumerate(characters):
            if token and rng.random() < 0.8:
                start[place] += 3 * (token[0] == answer[0])
                end[place] += 3 * (token[1] == answer[1])
        # No context at all in the only window of one question.
        if index == 3:
            characters = [None] * LENGTH
        windows.append({"start": [round(v, 4) for v in start.tolist()], "end": [round(v, 4) for v in end.tolist()],
                        "characters": characters})
        if begin + WINDOW >= len(tokens):
            break
    return context, answers, windows


def main():
    rng = np.random.default_rng(7)
    predictions, targets, questions = [], [], []
    for index in range(24):
        context, answers, windows = make_question(rng, index)
        prediction = best_answer(context, windows)
        predictions.append({"id": str(index), "prediction_text": prediction})
        targets.append({"id": str(index), "answers": {"text": answers, "answer_start": [0] * len(answers)}})
        for window in windows:
            # Ranges in bytes of the context.
            byte = lambda at: len(context[:at].encode())
            window["offsets"] = [[byte(a), byte(b)] if one else [-1, -1]
                                 for one in window.pop("characters") for a, b in [one or (0, 0)]]
        questions.append({"context": context, "answers": answers, "prediction": prediction, "windows": windows})
    figures = {name: value.item() / 100 for name, value in squad(predictions, targets).items()}
    out = {"length": LENGTH, "figures": figures, "questions": questions}
    text = json.dumps(out, ensure_ascii=False, separators=(",", ":"))
    Path(__file__).with_name("spans.json").write_text(text.replace('{"context"', '\n{"context"') + "\n")
    print(figures)


if __name__ == "__main__":
    main()
