"""Writes resnet50.safetensors: the logits of torchvision's ResNet-50 for the weights and images of formula.py.

    python tests/reference/make_resnet50.py
"""

from pathlib import Path

import torch
import torchvision
from safetensors.numpy import save_file

import formula

torch.manual_seed(0)
model = torchvision.models.resnet50(weights=None).eval()
state = {
    name: torch.zeros((), dtype=torch.int64)
    if name.endswith("num_batches_tracked")
    else torch.from_numpy(formula.weight(name, tuple(value.shape)))
    for name, value in model.state_dict().items()
}
model.load_state_dict(state, strict=True)
images = torch.from_numpy(formula.images(2))

with torch.inference_mode():
    logits = model(images)
    exact = model.double()(images.double())
scale = exact.abs().max()
print("torchvision", torchvision.__version__, "torch", torch.__version__)
print("largest logit", scale.item(), "smallest", exact.abs().min().item(), "std", exact.std().item())
print("fp32 against fp64, of the largest logit:", ((logits - exact).abs().max() / scale).item())
print("fp32 against fp64, of each logit:", ((logits - exact).abs() / exact.abs()).max().item())
print("argmax", logits.argmax(1).tolist())

target = Path(__file__).with_name("resnet50.safetensors")
save_file(
    {"logits": logits.numpy()},
    target,
    metadata={"torch": torch.__version__, "torchvision": torchvision.__version__},
)
print(target, target.stat().st_size, "bytes")
