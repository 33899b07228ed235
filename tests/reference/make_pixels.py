"""Writes small drawn JPEG files (images/drawn) and the result of torchvision's usual transform for each (crops).

    python tests/reference/make_pixels.py

Of the 224 by 224 pixels of a crop, every fourth row and column is stored.
"""

from pathlib import Path

import numpy
from PIL import Image

import pixels

IMAGES = Path(__file__).with_name("images") / "drawn"
CROPS = Path(__file__).with_name("crops")
# Name, width, height, save options. One image is larger and one smaller than the crop; one is greyscale.
FILES = [
    ("large", 500, 375, {"quality": 80, "subsampling": "4:2:0"}),
    ("small_progressive", 150, 190, {"quality": 92, "subsampling": "4:4:4", "progressive": True}),
    ("grey", 240, 330, {"quality": 85}),
]


def draw(width: int, height: int) -> numpy.ndarray:
    """Draws waves, a disc with a hard edge and fine stripes, which reveal a wrong filter, offset or clamp."""
    y, x = numpy.mgrid[0:height, 0:width].astype(numpy.float64)
    waves = [127 + 120 * numpy.sin(x / (7 + 5 * c) + y / (31 - 4 * c)) for c in range(3)]
    image = numpy.stack(waves, axis=-1)
    image[(x - width * 0.6) ** 2 + (y - height * 0.4) ** 2 < (height * 0.2) ** 2] = (230, 40, 60)
    stripes = (x < width * 0.4) & (y > height * 0.7)
    image[stripes] = (255 * (x[stripes] // 2 % 2))[:, None]
    return image.clip(0, 255).astype(numpy.uint8)


IMAGES.mkdir(parents=True, exist_ok=True)
CROPS.mkdir(exist_ok=True)
for name, width, height, options in FILES:
    image = Image.fromarray(draw(width, height))
    if name == "grey":
        image = image.convert("L")
    jpeg = IMAGES / f"{name}.jpg"
    image.save(jpeg, **options)
    crop = numpy.ascontiguousarray(pixels.reference(jpeg)[::4, ::4])
    png = CROPS / f"{name}.png"
    Image.fromarray(crop).save(png, optimize=True)
    print(name, jpeg.stat().st_size, png.stat().st_size, "bytes")
