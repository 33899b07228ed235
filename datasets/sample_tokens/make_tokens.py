"""Writes a text as a stream of BERT's tokens: little-endian u16 numbers, in one file; and the tokenizer as tokenizer.json.

    python3 -m pip install tokenizers
    python3 datasets/sample_tokens/make_tokens.py [VOCABULARY TEXT OUT]

VOCABULARY is vocab.txt of an uncased BERT. Every paragraph of TEXT, which an empty line ends, becomes [CLS], its tokens
and [SEP]. tokenizer.json is written beside OUT. Without arguments, both are made beside this script from text.txt and
vocab.txt. If vocab.txt is missing, a vocabulary of 1024 tokens is learned first, in which the special tokens have BERT's
numbers; pieces of equal frequency are chosen differently every time.
"""

import array
import sys
from pathlib import Path

from tokenizers import BertWordPieceTokenizer

FOLDER = Path(__file__).resolve().parent
SPECIAL = {0: "[PAD]", 100: "[UNK]", 101: "[CLS]", 102: "[SEP]", 103: "[MASK]"}
VOCABULARY_SIZE = 1024


def write_vocabulary(text: Path, vocabulary: Path) -> None:
    """Learns word pieces from a text and writes them after the numbers that BERT reserves."""
    tokenizer = BertWordPieceTokenizer(lowercase=True)
    reserved = max(SPECIAL) + 1
    options = {"min_frequency": 1, "special_tokens": ["[UNK]"], "show_progress": False}
    tokenizer.train([str(text)], vocab_size=VOCABULARY_SIZE - reserved + 1, **options)
    pieces = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    lines = [SPECIAL.get(number, f"[unused{number}]") for number in range(reserved)]
    lines += [piece for piece in pieces if piece != "[UNK]"]
    vocabulary.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_tokens(vocabulary: Path, text: Path, out: Path) -> int:
    tokenizer = BertWordPieceTokenizer(str(vocabulary), lowercase=True)
    tokens = array.array("H")
    for paragraph in text.read_text(encoding="utf-8").split("\n\n"):
        tokens.extend(tokenizer.encode(paragraph).ids)
    if sys.byteorder == "big":
        tokens.byteswap()
    out.write_bytes(tokens.tobytes())
    tokenizer.save(str(out.with_name("tokenizer.json")), pretty=False)
    return len(tokens)


def main() -> None:
    if len(sys.argv) == 4:
        vocabulary, text, out = map(Path, sys.argv[1:])
    elif len(sys.argv) == 1:
        vocabulary, text, out = (FOLDER / name for name in ("vocab.txt", "text.txt", "tokens.bin"))
        if not vocabulary.exists():
            write_vocabulary(text, vocabulary)
    else:
        sys.exit(__doc__)
    print(f"{out}: {write_tokens(vocabulary, text, out)} tokens")


main()
