"""Writes what OpenCV and YOLOv5 make of small images: letterbox.json.

    YOLOV5=FOLDER python tests/reference/make_letterbox.py

FOLDER is a checkout of ultralytics/yolov5, as for make_models.py. Pixels are rows of RGB levels in hexadecimal.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy

sys.path.append(os.environ["YOLOV5"])
from utils.augmentations import letterbox
from utils.dataloaders import LoadImagesAndLabels

FILTERS = {"linear": cv2.INTER_LINEAR, "area": cv2.INTER_AREA}
# Width and height before and after: up, down, both, by whole numbers, and from and to one pixel.
SIZES = {
    "linear": [
        ((5, 3), (11, 8)), ((13, 9), (7, 4)), ((6, 9), (11, 5)), ((12, 10), (6, 5)), ((9, 6), (3, 2)), ((1, 1), (4, 3)),
        ((1, 7), (3, 1)), ((8, 1), (5, 2)), ((3, 4), (1, 1)), ((2, 2), (13, 9)),
    ],
    "area": [
        ((13, 9), (7, 4)), ((12, 10), (6, 5)), ((9, 6), (3, 2)), ((12, 6), (3, 3)), ((16, 11), (15, 10)), ((7, 5), (1, 1)),
        ((10, 7), (10, 3)), ((23, 17), (9, 7)),
    ],
}  # fmt: skip
# Width and height of images, and the side of the square. 147 of 10 and 85 of 11 are scaled to a pixel more at first.
LETTERBOXES = [
    ((20, 13), 32), ((9, 31), 32), ((32, 21), 32), ((40, 59), 24), ((61, 7), 24), ((1, 50), 16), ((147, 90), 10),
    ((40, 85), 11),
]  # fmt: skip


def draw(width: int, height: int) -> numpy.ndarray:
    """Returns levels by a formula that the Rust test has, too."""
    places = numpy.arange(width * height * 3, dtype=numpy.uint32)
    return (places * numpy.uint32(2654435761) >> numpy.uint32(24)).astype(numpy.uint8).reshape(height, width, 3)


def validated(image: numpy.ndarray, side: int) -> numpy.ndarray:
    """Returns an image as val.py prepares it for a square."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "image.png"
        cv2.imwrite(str(file), image)
        dataset = SimpleNamespace(ims=[None], im_files=[str(file)], npy_files=[file.with_suffix(".npy")])
        dataset.img_size, dataset.augment = side, False
        loaded, _, _ = LoadImagesAndLabels.load_image(dataset, 0)
    return letterbox(loaded, side, auto=False, scaleup=False)[0]


def main() -> None:
    resized = []
    for name, sizes in SIZES.items():
        for size, target in sizes:
            pixels = cv2.resize(draw(*size), target, interpolation=FILTERS[name])
            resized.append({"filter": name, "size": size, "target": target, "pixels": pixels.tobytes().hex()})
    boxed = []
    for size, side in LETTERBOXES:
        pixels = validated(draw(*size), side)
        boxed.append({"size": size, "side": side, "pixels": pixels.tobytes().hex()})
    text = json.dumps({"resized": resized, "letterboxes": boxed})
    Path(__file__).with_name("letterbox.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
