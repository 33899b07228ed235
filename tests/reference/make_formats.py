"""Writes a drawn image in the formats that are decoded besides JPEG, with palettes, transparency and several frames.

    python tests/reference/make_formats.py FOLDER
"""

import sys
from pathlib import Path

import numpy
from PIL import Image


def draw(width: int, height: int) -> Image.Image:
    y, x = numpy.mgrid[0:height, 0:width].astype(numpy.float64)
    waves = [127 + 120 * numpy.sin(x / (7 + 5 * c) + y / (31 - 4 * c)) for c in range(3)]
    noise = numpy.random.default_rng(1).normal(0, 12, (height, width, 3))
    return Image.fromarray((numpy.stack(waves, axis=-1) + noise).clip(0, 255).astype(numpy.uint8))


folder = Path(sys.argv[1])
image, other = draw(301, 243), draw(301, 243).rotate(180)
alpha = image.convert("RGBA")
alpha.putalpha(Image.linear_gradient("L").resize(image.size))
palette = image.quantize(200)
for quality in (20, 75, 95):
    image.save(folder / f"lossy_{quality}.webp", quality=quality)
image.save(folder / "lossless.webp", lossless=True)
alpha.save(folder / "alpha.webp", quality=70)
alpha.save(folder / "alpha_lossless.webp", lossless=True, exact=True)
palette.save(folder / "palette.gif")
palette.save(folder / "transparent.gif", transparency=3)
palette.save(folder / "interlaced.gif", interlace=1)
image.convert("L").save(folder / "grey.gif")
for name in ("frames.gif", "frames.webp"):
    image.save(folder / name, save_all=True, append_images=[other, image])
image.save(folder / "rgb.bmp")
alpha.save(folder / "alpha.bmp")
palette.save(folder / "palette.bmp")
image.quantize(12).save(folder / "palette_4_bits.bmp")
image.convert("L").save(folder / "grey.bmp")
image.convert("1").save(folder / "bits.bmp")
