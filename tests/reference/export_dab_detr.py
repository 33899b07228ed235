"""Exports DAB-DETR of Hugging Face's transformers with PyTorch's own exporter, for the key `onnx` of the case dab_detr_r50. At
operator set 12, each layer normalisation is written as nine nodes: 35 in the full size.

    python tests/reference/export_dab_detr.py FILE [--size tiny] [--height 800] [--width 1066] [--weights MODEL]

Needs torch, timm and transformers. MODEL is a name at Hugging Face, such as IDEA-Research/dab-detr-resnet-50, or a folder;
without it, the weights are those of formula.py. With `--outline`, which also needs onnx, their values are left out: the file
refers to weights.bin beside it, which a test computes. So is models/dab_detr_r50.onnx made:

    python tests/reference/export_dab_detr.py tests/reference/models/dab_detr_r50.onnx --size tiny --height 96 --width 128 --outline
"""

import argparse
import warnings

import timm
import torch
from torch import nn
from transformers import DabDetrConfig, DabDetrForObjectDetection
from transformers.models.dab_detr.modeling_dab_detr import replace_batch_norm

import formula

OPSET = 12


def dab_detr(size: str) -> nn.Module:
    if size == "full":
        return DabDetrForObjectDetection(DabDetrConfig(num_labels=91))
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_queries": 10}
    layers = {"encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
    model = DabDetrForObjectDetection(DabDetrConfig(num_labels=91, hidden_size=32, **heads, **layers))
    # The configuration does not reach the widths of the backbone.
    sizes = {"layers": [1, 1, 1, 1], "channels": [8, 16, 32, 64], "out_indices": [1, 2, 3, 4]}
    backbone = timm.create_model("resnet50", features_only=True, **sizes)
    with torch.no_grad():
        replace_batch_norm(backbone)
    model.model.backbone.conv_encoder.model._backbone = backbone
    model.model.input_projection = nn.Conv2d(256, 32, 1)
    return model


def set_weights(model: nn.Module) -> nn.Module:
    """Sets every parameter and float buffer to the formula's values, under its state_dict name."""
    model = model.eval()
    with torch.no_grad():
        named = [(name, value) for name, value in model.named_parameters()]
        named += [(name, value) for name, value in model.named_buffers() if name in model.state_dict()]
        for name, value in named:
            if value.is_floating_point():
                value.copy_(torch.from_numpy(formula.weight(name, tuple(value.shape))))
    return model


class Detector(nn.Module):
    """The network with the inputs and outputs of the case."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: torch.Tensor, pixel_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        outputs = self.model(pixel_values=pixel_values, pixel_mask=pixel_mask)
        return outputs.logits, outputs.pred_boxes


def outline(file: str) -> None:
    """Replaces the values of the weights by places in weights.bin, and long names by short ones."""
    import onnx

    model = onnx.load(file)
    graph = model.graph
    kept = {value.name for value in [*graph.input, *graph.output]}
    names: dict[str, str] = {"": ""}
    offset = 0
    for tensor in graph.initializer:
        if not tensor.name.startswith("model."):
            continue
        names[tensor.name] = tensor.name.removeprefix("model.")
        length = len(tensor.raw_data)
        places = {"location": "weights.bin", "offset": offset, "length": length}
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.extend(onnx.StringStringEntryProto(key=key, value=str(value)) for key, value in places.items())
        offset += length
    short = lambda name: names.setdefault(name, name if name in kept else f"v{len(names)}")
    for tensor in graph.initializer:
        tensor.name = short(tensor.name)
    for number, node in enumerate(graph.node):
        node.name = f"n{number}"
        node.ClearField("doc_string")
        node.input[:] = [short(name) for name in node.input]
        node.output[:] = [short(name) for name in node.output]
    del graph.value_info[:]
    onnx.save(model, file)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--size", choices=["full", "tiny"], default="full")
    parser.add_argument("--height", type=int, default=800)
    parser.add_argument("--width", type=int, default=1066)
    parser.add_argument("--weights")
    parser.add_argument("--outline", action="store_true")
    arguments = parser.parse_args()
    if arguments.weights:
        model = DabDetrForObjectDetection.from_pretrained(arguments.weights, use_pretrained_backbone=False)
    else:
        model = set_weights(dab_detr(arguments.size))
    pixels = torch.zeros(1, 3, arguments.height, arguments.width)
    mask = torch.ones(1, arguments.height, arguments.width, dtype=torch.int64)
    names = {"input_names": ["pixel_values", "pixel_mask"], "output_names": ["logits", "pred_boxes"]}
    batch = {name: {0: "N"} for name in names["input_names"] + names["output_names"]}
    warnings.simplefilter("ignore")
    options = {"opset_version": OPSET, "dynamo": False, "do_constant_folding": not arguments.outline}
    with torch.no_grad():
        torch.onnx.export(Detector(model.eval()), (pixels, mask), arguments.file, dynamic_axes=batch, **names, **options)
    if arguments.outline:
        outline(arguments.file)


if __name__ == "__main__":
    main()
