"""Loads images with torchvision's DataLoader, like `loading.rs` with flagperf's: images per second, one line per pass.

    python benches/loading_torchvision.py DIR [WORKERS [BATCH [SECONDS [TRANSFORMS]]]]

DIR contains class folders. The workers start before the first pass and stay, as in training.
"""

import sys
import time

import torch
from torchvision import datasets, transforms
from torchvision.transforms import v2


def steps(name: str) -> list:
    """Returns the transforms of pixels, by the names of `loading.rs`."""
    if name == "validation":
        return [transforms.Resize(256), transforms.CenterCrop(224)]
    random = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()]
    return random + ([transforms.RandAugment()] if name == "training+rand_augment" else [])


def main(directory: str, workers: int = 2, batch: int = 32, seconds: float = 5.0, name: str = "validation") -> None:
    torch.set_num_threads(1)
    values = [transforms.ToTensor(), transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]
    images = datasets.ImageFolder(directory, transforms.Compose(steps(name) + values))
    options = {"num_workers": workers, "persistent_workers": workers > 0, "shuffle": name != "validation"}
    if name == "training+rand_augment":
        mixup = v2.MixUp(alpha=0.2, num_classes=1000)
        options["collate_fn"] = lambda samples: mixup(*torch.utils.data.default_collate(samples))
    loader = torch.utils.data.DataLoader(images, batch, **options)
    for _ in loader:
        pass
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        start = time.monotonic()
        for _ in loader:
            pass
        print(round(len(images) / (time.monotonic() - start)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *(kind(text) for kind, text in zip((int, int, float, str), sys.argv[2:])))
