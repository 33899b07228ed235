"""Writes training.json: the losses of 100 training steps of a small network by PyTorch, with each optimizer.

    python make_training.py    # packages: tests/reference/requirements.txt

Data and first parameters follow from a formula, so that the test computes the same: tests/training.rs.
"""

import json
import pathlib

import numpy as np
import torch

STEPS = 100
torch.set_num_threads(1)


def wave(shape, seed, scale):
    count = int(np.prod(shape))
    values = scale * np.sin(np.arange(count) * 0.7 + seed)
    return torch.tensor(values.astype(np.float32)).reshape(shape)


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(4)
        self.deep = torch.nn.Conv2d(4, 6, 3, stride=2, padding=1)
        self.head = torch.nn.Linear(6, 5)

    def forward(self, x):
        x = torch.tanh(self.norm(self.conv(x)))
        x = torch.nn.functional.gelu(self.deep(torch.nn.functional.avg_pool2d(x, 2)))
        return self.head(x.mean((2, 3)))


def network():
    model = Network()
    with torch.no_grad():
        for seed, parameter in enumerate(model.parameters()):
            parameter.copy_(wave(parameter.shape, seed, 0.4))
    return model


def batch(step):
    labels = torch.tensor([(3 * i + step) % 5 for i in range(8)])
    return wave((8, 1, 8, 8), step, 1.0) + 0.2 * labels.reshape(8, 1, 1, 1).float(), labels


class Lamb(torch.optim.Optimizer):
    """LAMB with bias correction and the trust ratio for parameters with a weight decay, as NVIDIA's FusedLAMB."""

    def __init__(self, params, lr, weight_decay):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
        self.count = 0

    @torch.no_grad()
    def step(self):
        self.count += 1
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
                state["m"].mul_(0.9).add_(p.grad, alpha=0.1)
                state["v"].mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
                mean = state["m"] / (1 - 0.9**self.count)
                root = (state["v"] / (1 - 0.999**self.count)).sqrt() + 1e-6
                update = mean / root + group["weight_decay"] * p
                ratio = 1.0
                if group["weight_decay"] != 0:
                    norms = p.norm(), update.norm()
                    ratio = norms[0] / norms[1] if norms[0] > 0 and norms[1] > 0 else 1.0
                p.sub_(group["lr"] * ratio * update)


def groups(model, decay):
    norm = {id(p) for p in model.norm.parameters()}
    return [
        {"params": [p for p in model.parameters() if id(p) not in norm], "weight_decay": decay},
        {"params": list(model.norm.parameters()), "weight_decay": 0.0},
    ]


OPTIMIZERS = {
    "sgd": lambda m: torch.optim.SGD(m.parameters(), 0.1),
    "sgd momentum": lambda m: torch.optim.SGD(groups(m, 1e-2), 0.05, momentum=0.9),
    "sgd nesterov": lambda m: torch.optim.SGD(m.parameters(), 0.05, momentum=0.9, nesterov=True, weight_decay=1e-2),
    "adam": lambda m: torch.optim.Adam(m.parameters(), 1e-2, weight_decay=1e-2),
    "adamw": lambda m: torch.optim.AdamW(groups(m, 0.1), 1e-2),
    "lamb": lambda m: Lamb(groups(m, 0.01), 1e-2, 0.01),
    "rmsprop": lambda m: torch.optim.RMSprop(m.parameters(), 1e-3, momentum=0.9, weight_decay=1e-2),
}

results = {}
for name, make in OPTIMIZERS.items():
    model = network()
    optimizer = make(model)
    model.train()
    losses, norms = [], []
    for step in range(STEPS):
        x, labels = batch(step)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), labels, label_smoothing=0.1)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm.item())
    states = {key: value.double().sum().item() for key, value in model.state_dict().items() if "num" not in key}
    results[name] = {"losses": losses, "norms": norms, "sums": states}

text = json.dumps(results, indent=None).replace('"losses"', '\n"losses"')
pathlib.Path(__file__).with_name("training.json").write_text(text + "\n")
