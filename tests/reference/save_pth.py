"""Saves the tensors of a safetensors file as a state_dict with `torch.save`, one of them as fp16 and one transposed.

    python tests/reference/save_pth.py IN.safetensors OUT.pth
"""

import sys
from collections import OrderedDict

import torch
from safetensors.torch import load_file

state = OrderedDict(load_file(sys.argv[1]))
matrix = next(name for name, value in state.items() if value.dim() == 2)
state[matrix] = state[matrix].t().contiguous().t()
vector = next(name for name, value in state.items() if value.dim() == 1)
state[vector] = state[vector].half()
state[matrix.rpartition(".")[0] + ".num_batches_tracked"] = torch.tensor(7)
torch.save(state, sys.argv[2])
