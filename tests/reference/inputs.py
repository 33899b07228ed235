"""Writes the inputs that PyTorch passes to a network: images decoded by PIL, resized, cropped and normalised.

    python tests/reference/inputs.py IMAGES INPUTS.safetensors MEAN STD

IMAGES contains class folders. INPUTS contains the first eight files in sorted order, by file name, as `3,224,224,f32`.
"""

import sys
from pathlib import Path

import numpy
from safetensors.numpy import save_file

import pixels

images, target, mean, std = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), float(sys.argv[4])


def prepare(path: Path) -> numpy.ndarray:
    values = pixels.reference(path).astype(numpy.float32) / numpy.float32(255)
    values = (values - numpy.float32(mean)) / numpy.float32(std)
    return numpy.ascontiguousarray(values.transpose(2, 0, 1))


save_file({path.name: prepare(path) for path in sorted(images.glob("*/*"))[:8]}, target)
