"""torchvision's ResNet-50 in PyTorch eager mode, timed as `engine.rs` times an engine: images a second, one line a second.

    python benches/libtorch_eager.py [BATCH [THREADS [SECONDS [LAYOUT]]]]

LAYOUT is `nchw`, `nhwc`, or `folded`: NHWC with each batch normalization folded into the convolution before it.
"""

import sys
import time

import torch
import torchvision
from torch.fx.experimental.optimization import fuse


@torch.inference_mode()
def main(batch: int = 8, threads: int = 2, seconds: float = 5.0, layout: str = "nchw") -> None:
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = torchvision.models.resnet50(weights=None).eval()
    if layout == "folded":
        model = fuse(model)
    if layout != "nchw":
        model = model.to(memory_format=torch.channels_last)
    images = torch.arange(batch * 3 * 224 * 224).remainder(251).div(125).sub(1).reshape(batch, 3, 224, 224)

    def line() -> float:
        start, count = time.monotonic(), 0
        while time.monotonic() - start < 1.0:
            model(images)
            count += batch
        return count / (time.monotonic() - start)

    line()
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        print(f"{line():.2f}", flush=True)


if __name__ == "__main__":
    main(*(kind(text) for kind, text in zip((int, int, float, str), sys.argv[1:])))
