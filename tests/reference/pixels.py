"""Compares the project's preprocessed pixels with torchvision's, file by file.

    python tests/reference/pixels.py CROPS.safetensors

CROPS contains the 224 by 224 crop of each file as `224,224,3,u8`, under the file's path. Prints one line and fails if
any value differs.
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
    """Returns torchvision's crop as `224,224,3,u8`; ToTensor divides by 255, which this function reverses exactly."""
    return (STEPS(pil_loader(str(path))) * 255).round().byte().permute(1, 2, 0).numpy()


def main() -> None:
    crops = load_file(sys.argv[1])
    errors = {path: numpy.abs(actual.astype(int) - reference(Path(path))) for path, actual in crops.items()}
    worst, name = max((error.max(), path) for path, error in errors.items())
    same = numpy.mean([(error == 0).mean() for error in errors.values()])
    print(f"{len(crops)} files: {same:.5%} of the values equal torchvision's, largest difference {worst}/255 in {name}")
    if not crops or worst > 0:
        sys.exit("the pixels differ from torchvision's")


if __name__ == "__main__":
    main()
