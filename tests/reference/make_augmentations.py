"""Writes what torchvision makes of a small image, of a batch and of its magnitudes: augmentations.json.

    python tests/reference/make_augmentations.py [WIDTH HEIGHT]

Pixels are rows of RGB levels in hexadecimal; images are PIL's, as in torchvision's training scripts.
"""

import json
import sys
from pathlib import Path

import numpy
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode, autoaugment
from torchvision.transforms import functional as F
from torchvision.transforms import v2

FILTERS = {"nearest": InterpolationMode.NEAREST, "bilinear": InterpolationMode.BILINEAR}


def draw(width: int, height: int) -> Image.Image:
    """Draws waves with a grey and a saturated part, so that every branch of the conversion to hue is taken."""
    y, x = numpy.mgrid[0:height, 0:width].astype(numpy.float64)
    waves = [127 + 110 * numpy.sin(x / (1.3 + c) + y / (3.1 - c)) for c in range(3)]
    image = numpy.stack(waves, axis=-1)
    image[(y >= height - 3) & (x < width / 2)] = 90
    image[:2, -4:] = (250, 10, 30)
    return Image.fromarray(image.clip(0, 255).astype(numpy.uint8))


def levels() -> list[tuple[str, list, callable]]:
    """Returns the operations on levels: name, parameters, function."""
    blends = {
        "brightness": F.adjust_brightness,
        "contrast": F.adjust_contrast,
        "saturation": F.adjust_saturation,
        "sharpness": F.adjust_sharpness,
    }
    cases = [(name, [factor], call) for name, call in blends.items() for factor in (0.0, 0.37, 1.0, 1.83)]
    cases += [("hue", [factor], F.adjust_hue) for factor in (-0.5, -0.21, 0.004, 0.33, 0.5)]
    cases += [("posterize", [bits], F.posterize) for bits in (1, 4, 8)]
    cases += [("solarize", [threshold], F.solarize) for threshold in (0.0, 110.5, 255.0)]
    singles = {"auto_contrast": F.autocontrast, "equalize": F.equalize, "invert": F.invert}
    return cases + [(name, [], call) for name, call in singles.items()]


def moves(filter_name: str) -> list[tuple[str, list, callable]]:
    """Returns the operations that move pixels, as RandAugment applies them."""
    names = {"shear_x": "ShearX", "shear_y": "ShearY", "translate_x": "TranslateX", "translate_y": "TranslateY"}
    magnitudes = [0.3, -0.8]
    cases = []
    for name, operation in {**names, "rotate": "Rotate"}.items():
        found = {"shear_x": magnitudes, "shear_y": magnitudes}.get(name, [3.7, -2.0])
        for magnitude in [30.0, -135.0, 90.0, 180.0] if name == "rotate" else found:
            for fill in (None, [128.0] * 3):

                def call(image, magnitude, level, operation=operation, fill=fill):
                    return autoaugment._apply_op(image, operation, magnitude, FILTERS[filter_name], fill)

                cases.append((name, [magnitude, filter_name, 0 if fill is None else 128], call))
    return cases


def crops(width: int, height: int) -> list[tuple[str, list, callable]]:
    """Returns random resized crops with given parameters: top, left, height, width, side of the result."""

    def call(image, top, left, part_height, part_width, side):
        return F.resized_crop(image, top, left, part_height, part_width, [side, side], InterpolationMode.BILINEAR)

    parts = [(2, 3, height - 4, width - 5, 8), (0, 0, height, width, 7), (height - 4, width - 3, 4, 3, 9)]
    flip = ("horizontal_flip", [], F.hflip)
    return [("resized_crop", list(part), lambda image, *numbers: call(image, *numbers)) for part in parts] + [flip]


def mixed() -> dict:
    """Returns a batch and what mixup and cutmix make of it: 3 images of 2 x 4 x 5 and 3 labels of 4 classes."""
    images = torch.rand((3, 2, 4, 5), generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([2, 0, 3])
    out = {"images": images.flatten().tolist(), "labels": labels.tolist()}
    mixup, cutmix = v2.MixUp(num_classes=4), v2.CutMix(num_classes=4)
    for share in (0.3, 0.8123):
        params = {"labels": labels, "batch_size": 3, "lam": share}
        found = [mixup.transform(item, params).flatten().tolist() for item in (images, labels)]
        out.setdefault("mixup", []).append({"share": share, "images": found[0], "labels": found[1]})
    for box in ((1, 0, 4, 2), (0, 1, 5, 4)):
        share = 1.0 - (box[2] - box[0]) * (box[3] - box[1]) / 20
        params = {"labels": labels, "batch_size": 3, "box": box, "lam_adjusted": share}
        found = [cutmix.transform(item, params).flatten().tolist() for item in (images, labels)]
        out.setdefault("cutmix", []).append({"box": box, "images": found[0], "labels": found[1]})
    return out


def magnitudes() -> dict:
    """Returns the magnitudes of each policy for an image of 500 x 375 pixels."""
    policies = {
        "rand_augment": autoaugment.RandAugment()._augmentation_space(31, (375, 500)),
        "trivial_augment_wide": autoaugment.TrivialAugmentWide()._augmentation_space(31),
        "auto_augment": autoaugment.AutoAugment()._augmentation_space(10, (375, 500)),
    }
    return {
        policy: {name: [steps.tolist(), signed] for name, (steps, signed) in space.items() if steps.ndim > 0}
        for policy, space in policies.items()
    }


def main(width: int = 17, height: int = 11) -> None:
    image = draw(width, height)
    cases = levels() + [case for name in FILTERS for case in moves(name)] + crops(width, height)
    operations = []
    for name, parameters, call in cases:
        numbers = [parameter for parameter in parameters if not isinstance(parameter, str)]
        found = call(image, *numbers)
        operations.append({"name": name, "parameters": parameters, "pixels": found.tobytes().hex()})
    text = json.dumps(
        {
            "size": [width, height],
            "pixels": image.tobytes().hex(),
            "operations": operations,
            "mixed": mixed(),
            "magnitudes": magnitudes(),
        },
        separators=(",", ":"),
    )
    Path(__file__).with_name("augmentations.json").write_text(text.replace("},{", "},\n{") + "\n")
    print(f"{len(operations)} operations, {len(text)} bytes")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
