"""Compares the project's preprocessed pixels with torchvision's, file by file.

    python tests/reference/pixels.py CROPS.safetensors

CROPS holds, under each file's path, the 224 by 224 crop as `224,224,3,u8`. Prints one line; fails when any value
differs.
"""

import sys
from pathlib import Path

import numpy
import torch
from safetensors.numpy import load_file
from torchvision import transforms
from torchvision.datasets.folder import pil_loader

torch.set_num_threads(1)
STEPS = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor()])


def reference(path: Path) -> numpy.ndarray:
    """`224,224,3,u8`: ToTensor divides by 255, which this takes back exactly."""
    return (STEPS(pil_loader(str(path))) * 255).round().byte().permute(1, 2, 0).numpy()


def main() -> None:
    crops = load_file(sys.argv[1])
    errors = {path: numpy.abs(ours.astype(int) - reference(Path(path))) for path, ours in crops.items()}
    worst, name = max((error.max(), path) for path, error in errors.items())
    same = numpy.mean([(error == 0).mean() for error in errors.values()])
    print(f"{len(crops)} files: {same:.5%} of the values are torchvision's, worst {worst}/255 in {name}")
    if not crops or worst > 0:
        sys.exit("the pixels differ from torchvision's")


if __name__ == "__main__":
    main()
