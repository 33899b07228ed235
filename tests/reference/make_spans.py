"""Writes spans.json: random windows with logits, and the figures of SQuAD 1.1's evaluation for the answers that Hugging
Face's question-answering example picks. Needs only NumPy.

    python tests/reference/make_spans.py

`postprocess` is `postprocess_qa_predictions` of transformers/examples/pytorch/question-answering/utils_qa.py, reduced to
its computation with the default options; the functions of the evaluation are those of evaluate-v1.1.py.
"""

import json
import re
import string
from collections import Counter
from pathlib import Path

import numpy as np

LENGTH = 40
WINDOW = 28
STRIDE = 12
WORDS = (
    "the a an The An A river tower's cat-like Paris, 1889 (the engineer) Zoë naïve “quoted” U.S. and-the theatre of "
    "in; twenty-one $5.00 a's königreich it's"
).split()


def normalize_answer(s):
    def remove_articles(text):
        return re.sub(r"\b(a|an|the)\b", " ", text)

    def white_space_fix(text):
        return " ".join(text.split())

    def remove_punc(text):
        exclude = set(string.punctuation)
        return "".join(ch for ch in text if ch not in exclude)

    return white_space_fix(remove_articles(remove_punc(s.lower())))


def f1_score(prediction, ground_truth):
    prediction_tokens = normalize_answer(prediction).split()
    ground_truth_tokens = normalize_answer(ground_truth).split()
    common = Counter(prediction_tokens) & Counter(ground_truth_tokens)
    num_same = sum(common.values())
    if num_same == 0:
        return 0
    precision = 1.0 * num_same / len(prediction_tokens)
    recall = 1.0 * num_same / len(ground_truth_tokens)
    return (2 * precision * recall) / (precision + recall)


def exact_match_score(prediction, ground_truth):
    return normalize_answer(prediction) == normalize_answer(ground_truth)


def postprocess(context, windows, n_best_size=20, max_answer_length=30):
    found = []
    for window in windows:
        start_logits = np.array(window["start"], dtype=np.float32)
        end_logits = np.array(window["end"], dtype=np.float32)
        offsets = window["characters"]
        start_indexes = np.argsort(start_logits)[-1 : -n_best_size - 1 : -1].tolist()
        end_indexes = np.argsort(end_logits)[-1 : -n_best_size - 1 : -1].tolist()
        for start in start_indexes:
            for end in end_indexes:
                if offsets[start] is None or offsets[end] is None:
                    continue
                if end < start or end - start + 1 > max_answer_length:
                    continue
                score = start_logits[start] + end_logits[end]
                found.append((score, context[offsets[start][0] : offsets[end][1]]))
    found = sorted(found, key=lambda one: one[0], reverse=True)[:n_best_size]
    if not found or (len(found) == 1 and found[0][1] == ""):
        return "empty"
    return found[0][1]


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
    first = int(rng.integers(0, len(tokens) - 3))
    answer = (tokens[first][0], tokens[min(first + int(rng.integers(0, 4)), len(tokens) - 1)][1])
    answers = [context[answer[0] : answer[1]]]
    answers += [WORDS[int(rng.integers(0, len(WORDS)))] for _ in range(int(rng.integers(0, 3)))]
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
    exact = f1 = 0
    questions = []
    for index in range(24):
        context, answers, windows = make_question(rng, index)
        prediction = postprocess(context, windows)
        exact += max(exact_match_score(prediction, answer) for answer in answers)
        f1 += max(f1_score(prediction, answer) for answer in answers)
        for window in windows:
            # Ranges in bytes of the context.
            byte = lambda at: len(context[:at].encode())
            window["offsets"] = [[byte(a), byte(b)] if one else [-1, -1]
                                 for one in window.pop("characters") for a, b in [one or (0, 0)]]
        questions.append({"context": context, "answers": answers, "prediction": prediction, "windows": windows})
    figures = {"exact_match": exact / len(questions), "f1": f1 / len(questions)}
    out = {"length": LENGTH, "figures": figures, "questions": questions}
    text = json.dumps(out, ensure_ascii=False, separators=(",", ":"))
    Path(__file__).with_name("spans.json").write_text(text.replace('{"context"', '\n{"context"') + "\n")
    print(figures)


if __name__ == "__main__":
    main()
