"""Writes models/CASE.safetensors: the outputs of the small configurations of the cases in torchvision and in Hugging
Face's transformers, for the weights and inputs of formula.py, and models/counts.json: parameters and multiply-adds.

    python tests/reference/make_models.py
"""

import json
import os
import sys
from pathlib import Path

import diffusers
import numpy
import torch
import torchvision
import transformers
import yaml
from safetensors.numpy import save_file
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForQuestionAnswering,
    LlamaConfig,
    LlamaForCausalLM,
    SamConfig,
    SamModel,
)

import diffusion
import formula
from export_dab_detr import dab_detr, set_weights

FOLDER = Path(__file__).with_name("models")
torch.backends.mha.set_fastpath_enabled(False)


class UNet(nn.Module):
    """The network of scripts/unet_tiny."""

    def __init__(self, widths: list[int], classes: int):
        super().__init__()
        self.levels = len(widths) - 1

        def double(name: str, channels: int, out: int) -> None:
            parts = nn.Module()
            for part in range(2):
                setattr(parts, f"conv{part}", nn.Conv2d(out if part else channels, out, 3, padding=1, bias=False))
                setattr(parts, f"norm{part}", nn.BatchNorm2d(out))
            setattr(self, name, parts)

        for level in range(self.levels):
            double(f"down{level}", widths[level - 1] if level else 3, widths[level])
            double(f"up{level}", widths[level] + widths[level + 1], widths[level])
        double("bottom", widths[-2], widths[-1])
        self.classes = nn.Conv2d(widths[0], classes, 1)

    def double(self, name: str, x: torch.Tensor) -> torch.Tensor:
        parts = getattr(self, name)
        for part in range(2):
            x = getattr(parts, f"norm{part}")(getattr(parts, f"conv{part}")(x)).relu()
        return x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skipped = []
        for level in range(self.levels):
            skipped.append(self.double(f"down{level}", x))
            x = nn.functional.max_pool2d(skipped[-1], 2)
        x = self.double("bottom", x)
        for level in reversed(range(self.levels)):
            x = torch.cat([skipped[level], nn.functional.interpolate(x, scale_factor=2)], 1)
            x = self.double(f"up{level}", x)
        return self.classes(x)


class DnCNN(nn.Module):
    """The graph `denoise` of scripts/unet_tiny."""

    def __init__(self, width: int):
        super().__init__()
        self.denoise = nn.Module()
        for layer in range(5):
            channels, out = 3 if layer == 0 else width, 3 if layer == 4 else width
            convolution = nn.Conv2d(channels, out, 3, padding=1, bias=layer in (0, 4))
            setattr(self.denoise, f"conv{layer}", convolution)
            if 0 < layer < 4:
                setattr(self.denoise, f"norm{layer}", nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        noise = self.denoise.conv0(x).relu()
        for layer in range(1, 4):
            noise = getattr(self.denoise, f"conv{layer}")(noise)
            noise = getattr(self.denoise, f"norm{layer}")(noise).relu()
        return x - self.denoise.conv4(noise)


def vit(size: str, image: int) -> nn.Module:
    if size == "full":
        return torchvision.models.vit_l_16(weights=None)
    return torchvision.models.VisionTransformer(image, 16, 2, 4, 32, 64, num_classes=10)


def swin(size: str) -> nn.Module:
    if size == "full":
        return torchvision.models.swin_b(weights=None)
    block = torchvision.models.swin_transformer.SwinTransformerBlock
    sizes = {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": [7, 7]}
    return torchvision.models.SwinTransformer([4, 4], **sizes, num_classes=10, block=block)


def resnet(size: str) -> nn.Module:
    if size == "full":
        return torchvision.models.resnet101(weights=None)
    bottleneck = torchvision.models.resnet.Bottleneck
    return torchvision.models.ResNet(bottleneck, [1, 1, 1, 1], num_classes=10)


def bert(size: str, model: type) -> nn.Module:
    full = {"vocab_size": 30522, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
    tiny = {"vocab_size": 1024, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes = full | {"intermediate_size": 4096} if size == "full" else tiny | {"intermediate_size": 64}
    return model(BertConfig(**sizes, attn_implementation="eager"))


def llama(size: str) -> nn.Module:
    full = {"vocab_size": 49152, "hidden_size": 576, "num_hidden_layers": 30, "intermediate_size": 1536}
    tiny = {"vocab_size": 1024, "hidden_size": 48, "num_hidden_layers": 2, "intermediate_size": 96}
    heads = {"num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192}
    few = {"num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 1024}
    sizes = full | heads if size == "full" else tiny | few
    rope = {"rope_type": "default", "rope_theta": 100000.0}
    config = LlamaConfig(
        **sizes, rope_parameters=rope, rms_norm_eps=1e-5, tie_word_embeddings=True, attn_implementation="eager"
    )
    return LlamaForCausalLM(config)


def question_model(case: str, size: str) -> nn.Module:
    vocabulary, hidden, kv_heads, layers, theta, eps = {
        "llama2_7b_mmlu": (32000, 11008, 32, 32, 10000.0, 1e-5),
        "llama3_8b_mmlu": (128256, 14336, 8, 32, 500000.0, 1e-5),
        "deepseek_7b_mmlu": (102400, 11008, 32, 30, 10000.0, 1e-6),
        "Aquila_7b_mmlu": (100008, 11008, 32, 32, 10000.0, 1e-6),
    }[case]
    sizes = {"vocab_size": vocabulary, "hidden_size": 4096, "num_hidden_layers": layers, "intermediate_size": hidden}
    sizes |= {"num_attention_heads": 32, "num_key_value_heads": kv_heads, "max_position_embeddings": 4096}
    if size == "tiny":
        sizes = {"vocab_size": 1024, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64}
        sizes |= {"num_attention_heads": 4, "num_key_value_heads": kv_heads // 8 * 2 if kv_heads < 32 else 4}
        sizes |= {"max_position_embeddings": 1024}
    rope = {"rope_type": "default", "rope_theta": theta}
    attention = {"attn_implementation": "eager", "tie_word_embeddings": False}
    return LlamaForCausalLM(LlamaConfig(**sizes, rope_parameters=rope, rms_norm_eps=eps, **attention))


QUESTION_MODELS = ["llama2_7b_mmlu", "llama3_8b_mmlu", "deepseek_7b_mmlu", "Aquila_7b_mmlu"]


def scored(model: nn.Module) -> dict[str, torch.Tensor]:
    """Two prompts of 8 and 6 tokens, the second one padded in front."""
    mask = torch.ones(2, 8, dtype=torch.int64)
    mask[1, :2] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    words = tokens("input_ids", (2, 8), 1024)
    return {"logits": model(words, attention_mask=mask, position_ids=positions).logits[:, 7]}


def count_question_models() -> dict[str, dict[str, int]]:
    """Counts a prompt of 64 tokens, of which the last position alone has scores."""
    with torch.device("meta"):
        models = {case: question_model(case, "full").eval() for case in QUESTION_MODELS}
        prompt = torch.zeros(1, 64, dtype=torch.int64)
        return {case: count(model, prompt, logits_to_keep=1) for case, model in models.items()}


def sam(size: str) -> nn.Module:
    if size == "full":
        vision = {"hidden_size": 1280, "num_hidden_layers": 32, "num_attention_heads": 16}
        config = SamConfig(vision_config=vision | {"global_attn_indexes": [7, 15, 23, 31]})
    else:
        vision = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "global_attn_indexes": [1]}
        vision |= {"window_size": 3, "image_size": 64, "output_channels": 32, "num_pos_feats": 16}
        prompt = {"hidden_size": 32, "image_size": 64}
        decoder = {"hidden_size": 32, "num_attention_heads": 4, "mlp_dim": 64, "iou_head_hidden_dim": 32}
        config = SamConfig(vision_config=vision, prompt_encoder_config=prompt, mask_decoder_config=decoder)
    return SamModel._from_config(config, attn_implementation="eager")


def yolo(size: str) -> nn.Module:
    """The network of the checkout of ultralytics/yolov5 that YOLOV5 names."""
    folder = os.environ["YOLOV5"]
    sys.path.append(folder)
    from models.yolo import DetectionModel

    config = yaml.safe_load((Path(folder) / "models/yolov5l.yaml").read_text())
    if size == "tiny":
        config |= {"nc": 3, "depth_multiple": 0.33, "width_multiple": 0.125}
    return DetectionModel(config)


def tokens(name: str, shape: tuple[int, ...], count: int) -> torch.Tensor:
    return torch.from_numpy(formula.integers(name, shape, count))


def image(size: int) -> torch.Tensor:
    return torch.from_numpy(formula.uniform("image", 2 * 3 * size * size).reshape(2, 3, size, size))


def count(model: nn.Module, *inputs: torch.Tensor, **named: torch.Tensor) -> dict[str, int]:
    """Returns the learned parameters and the multiply-adds of one sample, which PyTorch counts as two operations each."""
    # The products of a fused attention would not be counted.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter, torch.inference_mode():
        model(*inputs, **named)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {"parameters": parameters, "multiply_adds": counter.get_total_flops() // 2}


def count_dab_detr() -> dict[str, int]:
    """Counts what the outputs need, of an image of 800x1066 pixels."""
    model = dab_detr("full")
    pixels = torch.zeros(1, 3, 800, 1066)
    counts = count(model, pixels, pixel_mask=torch.ones(1, 800, 1066, dtype=torch.int64))
    # The scales and shifts of the batch normalisations are frozen, hence buffers.
    frozen = [buffer for name, buffer in model.named_buffers() if name.endswith((".weight", ".bias"))]
    counts["parameters"] += sum(buffer.numel() for buffer in frozen)
    # transformers also refines the boxes of the first five layers for the losses of a training, and once more the
    # reference points after the last layer.
    counts["multiply_adds"] -= count(model.bbox_predictor, torch.zeros(6, 1, 300, 256))["multiply_adds"]
    return counts


def count_sam() -> dict[str, dict[str, int]]:
    """Counts both graphs for an image and one point, without the weights that only other prompts need."""
    with torch.device("meta"):
        model = sam("full").eval()
        encoder = count(model.vision_encoder, torch.zeros(1, 3, 1024, 1024))
        embedding, point = torch.zeros(1, 256, 64, 64), torch.zeros(1, 1, 1, 2)
        decoder = count(model, image_embeddings=embedding, input_points=point)
    prompts = model.prompt_encoder
    others = [prompts.mask_embed, *(prompts.point_embed[label] for label in (0, 2, 3))]
    unused = sum(parameter.numel() for module in others for parameter in module.parameters())
    decoder["parameters"] -= encoder["parameters"] + unused
    # transformers also embeds the place of a point of padding, and replaces the result.
    decoder["multiply_adds"] -= 2 * 128
    return {"sam_h_encoder": encoder, "sam_h_decoder": decoder}


def detected() -> dict[str, torch.Tensor]:
    """Two images, the second one with padding below and to the right."""
    pixels = torch.from_numpy(formula.uniform("image", 2 * 3 * 96 * 128).reshape(2, 3, 96, 128))
    mask = torch.ones(2, 96, 128, dtype=torch.int64)
    mask[1, 50:] = 0
    mask[1, :, 70:] = 0
    output = set_weights(dab_detr("tiny"))(pixels, pixel_mask=mask)
    return {"logits": output.logits, "pred_boxes": output.pred_boxes}


def segmented() -> dict[str, torch.Tensor]:
    """Two images with a point each."""
    points = torch.tensor([[[[20.0, 30.0]]], [[[63.0, 5.0]]]])
    model = set_weights(sam("tiny"))
    embeddings = model.get_image_embeddings(image(64))
    output = model(image_embeddings=embeddings, input_points=points)
    masks, scores = output.pred_masks.squeeze(1), output.iou_scores.squeeze(1)
    return {"image_embeddings": embeddings, "pred_masks": masks, "iou_scores": scores}


def deciding_pixels(network: nn.Module, pixels: torch.Tensor) -> dict[str, torch.Tensor]:
    """The gradients of the highest logit of each image, with respect to the pixels and to the parameters."""
    with torch.enable_grad():
        pixels = pixels.clone().requires_grad_()
        network(pixels).max(1).values.sum().backward()
    parameters = torch.stack([parameter.grad.square().sum() for parameter in network.parameters()]).sum().sqrt()
    return {"images_gradient": pixels.grad, "parameters_gradient_norm": parameters.reshape(1)}


def small_outputs() -> dict[str, dict[str, torch.Tensor]]:
    masked, answers = bert("tiny", BertForMaskedLM), bert("tiny", BertForQuestionAnswering)
    words, types = tokens("input", (2, 16), 1024), tokens("token_types", (2, 16), 2)
    mask = torch.ones(2, 16, dtype=torch.int64)
    mask[1, 11:] = 0
    spans = set_weights(answers)(words, attention_mask=mask, token_type_ids=types)
    results = {
        "vit_l_16": {"output": set_weights(vit("tiny", 64))(image(64))},
        "swinTransformer": {"output": set_weights(swin("tiny"))(image(56))},
        "resnet101": {"output": set_weights(resnet("tiny"))(image(64))},
        "resnet101_gradients": deciding_pixels(set_weights(resnet("tiny")), image(32)),
        "unet_tiny": {
            "output": set_weights(UNet([4, 8, 16], 3))(image(16)),
            "clean": set_weights(DnCNN(4))(image(16)),
        },
        "bertLarge": {"first_token": set_weights(masked)(words).logits[:, 0]},
        "bertLarge_answers": {"output": torch.stack([spans.start_logits, spans.end_logits], 2)},
    }
    results |= diffusion.small_outputs(set_weights)
    results |= {"dab_detr_r50": detected(), "sam_h": segmented()}
    results |= {case: scored(set_weights(question_model(case, "tiny"))) for case in QUESTION_MODELS}
    network = yolo("tiny")
    anchors = network.model[-1].anchors.clone()
    set_weights(network).model[-1].anchors.copy_(anchors)
    results |= {"yolov5": {"output": network(image(128))[0]}}
    return results | {"smollm2_135m": generated(set_weights(llama("tiny")))}


def generated(model: nn.Module) -> dict[str, torch.Tensor]:
    """Two prompts of 7 and 5 tokens, the second one padded in front, and then one more token of each."""
    words = tokens("input_ids", (2, 8), 1024)
    mask = torch.ones(2, 8, dtype=torch.int64)
    mask[1, :2] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    first = model(words[:, :7], attention_mask=mask[:, :7], position_ids=positions[:, :7], use_cache=True)
    past = first.past_key_values
    second = model(words[:, 7:], attention_mask=mask, position_ids=positions[:, 7:], past_key_values=past)
    return {"prefill": first.logits[:, 6], "decode": second.logits[:, 0]}


def full_counts() -> dict[str, dict[str, int]]:
    picture = torch.zeros(1, 3, 224, 224)
    text = torch.zeros(1, 512, dtype=torch.int64)
    prompt = torch.zeros(1, 64, dtype=torch.int64)
    mask = torch.ones_like(text)
    return {
        "vit_l_16": count(vit("full", 224), picture),
        "swinTransformer": count(swin("full"), picture),
        "resnet101": count(resnet("full"), picture),
        "unet_tiny": count(UNet([32, 64, 128], 3), torch.zeros(1, 3, 128, 128)),
        "unet_tiny_denoise": count(DnCNN(32), torch.zeros(1, 3, 128, 128)),
        "bertLarge": count(bert("full", BertForMaskedLM), text),
        "bertLarge_answers": count(bert("full", BertForQuestionAnswering), text, attention_mask=mask, token_type_ids=text),
        "smollm2_135m": count(llama("full"), prompt),
        "dab_detr_r50": count_dab_detr(),
        **count_sam(),
        **count_question_models(),
        "yolov5": count(yolo("full").eval(), torch.zeros(1, 3, 640, 640)),
    } | diffusion.full_counts(count)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    modules = (torch, torchvision, transformers, diffusers)
    versions = {module.__name__: module.__version__ for module in modules}
    with torch.inference_mode():
        for case, outputs in small_outputs().items():
            arrays = {name: numpy.ascontiguousarray(output.numpy()) for name, output in outputs.items()}
            save_file(arrays, FOLDER / f"{case}.safetensors", metadata=versions)
            print(case, {name: (array.shape, float(numpy.abs(array).max())) for name, array in arrays.items()})
    counts = full_counts()
    (FOLDER / "counts.json").write_text(json.dumps(counts, indent=2) + "\n")
    print(json.dumps(counts, indent=2))
