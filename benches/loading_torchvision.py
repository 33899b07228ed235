"""Loads images with torchvision's DataLoader, like `loading.rs` with flagperf's: images per second, one line per pass.

    python benches/loading_torchvision.py DIR [WORKERS [BATCH [SECONDS]]]

DIR contains class folders. The workers start before the first pass and stay, as in training.
"""

import sys
import time

import torch
from torchvision import datasets, transforms


def main(directory: str, workers: int = 2, batch: int = 32, seconds: float = 5.0) -> None:
    torch.set_num_threads(1)
    steps = transforms.Compose(
        [
            transforms.Resize(256),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )
    images = datasets.ImageFolder(directory, steps)
    loader = torch.utils.data.DataLoader(images, batch, num_workers=workers, persistent_workers=workers > 0)
    for _ in loader:
        pass
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        start = time.monotonic()
        for _ in loader:
            pass
        print(round(len(images) / (time.monotonic() - start)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *(kind(text) for kind, text in zip((int, int, float), sys.argv[2:])))
