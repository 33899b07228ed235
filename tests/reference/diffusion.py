"""Stable Diffusion 1.4 in diffusers and transformers: what make_models.py writes of it; and a pipeline of the small size.

    python tests/reference/diffusion.py FOLDER

writes the weights of formula.py into FOLDER as diffusers saves a pipeline.
"""

import sys
from pathlib import Path

import numpy
import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    EulerDiscreteScheduler,
    PNDMScheduler,
    StableDiffusionPipeline,
    UNet2DConditionModel,
)
from safetensors.numpy import save_file
from torch import nn
from transformers import CLIPTextConfig, CLIPTextModel

import formula

SCHEDULE = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "timestep_spacing": "leading"}
# Of the small size: the steps of an image, and those of a trajectory, which do not divide 1000.
STEPS, TRAJECTORY = 4, 7


def scheduler(name: str):
    match name:
        case "ddim":
            return DDIMScheduler(**SCHEDULE, clip_sample=False, set_alpha_to_one=False, steps_offset=1)
        case "pndm":
            return PNDMScheduler(**SCHEDULE, skip_prk_steps=True, set_alpha_to_one=False, steps_offset=1)
    return EulerDiscreteScheduler(**SCHEDULE, steps_offset=1)


def text_encoder(size: str) -> nn.Module:
    full = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
    tiny = {"hidden_size": 32, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    tiny |= {"vocab_size": 1000, "bos_token_id": 998, "eos_token_id": 999, "pad_token_id": 999}
    sizes = full if size == "full" else tiny
    return CLIPTextModel(CLIPTextConfig(**sizes, hidden_act="quick_gelu", attn_implementation="eager"))


def unet(size: str) -> nn.Module:
    tiny = {"block_out_channels": (16, 32, 32, 32), "layers_per_block": 1, "norm_num_groups": 4}
    sizes = {"cross_attention_dim": 768} if size == "full" else tiny | {"cross_attention_dim": 32, "attention_head_dim": 2}
    return UNet2DConditionModel(sample_size=64 if size == "full" else 8, **sizes)


def autoencoder(size: str) -> nn.Module:
    full = {"block_out_channels": (128, 256, 512, 512), "layers_per_block": 2}
    tiny = {"block_out_channels": (8, 8, 16, 16), "layers_per_block": 1, "norm_num_groups": 4}
    blocks = {"down_block_types": ("DownEncoderBlock2D",) * 4, "up_block_types": ("UpDecoderBlock2D",) * 4}
    return AutoencoderKL(**blocks, **(full if size == "full" else tiny), latent_channels=4)


def decoded(model: nn.Module) -> nn.Module:
    """The part of an autoencoder that decodes, which has the names of the whole."""
    part = nn.Module()
    part.decoder, part.post_quant_conv = model.decoder, model.post_quant_conv
    part.forward = lambda latents: part.decoder(part.post_quant_conv(latents))
    return part


def latents(rows: int) -> torch.Tensor:
    # Uniform numbers of variance 1.
    return torch.from_numpy(formula.uniform("latents", rows * 4 * 8 * 8).reshape(rows, 4, 8, 8)) * 3**0.5


def prompts(rows: int) -> torch.Tensor:
    return torch.from_numpy(formula.integers("input_ids", (rows, 77), 1000))


def trajectory(name: str) -> torch.Tensor:
    """The latents after each run of a model that predicts the sine of what it reads."""
    sampler = scheduler(name)
    sampler.set_timesteps(TRAJECTORY)
    state, states = latents(1) * sampler.init_noise_sigma, []
    for timestep in sampler.timesteps:
        noise = torch.sin(sampler.scale_model_input(state, timestep) + timestep / 100)
        state = sampler.step(noise, timestep, state).prev_sample
        states.append(state)
    if name == "euler":  # flagperf keeps the latents of Euler's method as the model reads them.
        states = [state / (sigma**2 + 1) ** 0.5 for state, sigma in zip(states, sampler.sigmas[1:])]
    return torch.stack(states, 1)


def pipeline(set_weights) -> StableDiffusionPipeline:
    parts = {"vae": autoencoder("tiny"), "text_encoder": text_encoder("tiny"), "unet": unet("tiny")}
    parts = {name: set_weights(part) for name, part in parts.items()}
    others = {"tokenizer": None, "safety_checker": None, "feature_extractor": None}
    return StableDiffusionPipeline(**parts, **others, scheduler=scheduler("pndm"), requires_safety_checker=False)


def picture(pipe: StableDiffusionPipeline) -> numpy.ndarray:
    """The image of one prompt, `1,64,64,3` with levels from 0 to 255."""
    empty = torch.tensor([[998] + [999] * 76])
    given = {"prompt_embeds": prompts(1), "negative_prompt_embeds": empty}
    given = {key: pipe.text_encoder(words).last_hidden_state for key, words in given.items()}
    pipe.set_progress_bar_config(disable=True)
    given |= {"latents": latents(1), "num_inference_steps": STEPS, "guidance_scale": 7.5}
    return (pipe(**given, output_type="np").images * 255).round().astype(numpy.uint8)


def small_outputs(set_weights) -> dict[str, dict[str, torch.Tensor]]:
    pipe = pipeline(set_weights)
    embeddings = pipe.text_encoder(prompts(2)).last_hidden_state
    outputs = {
        "embeddings": embeddings,
        "noise": pipe.unet(latents(2), torch.tensor([981, 21]), embeddings).sample,
        "decoded": decoded(pipe.vae)(latents(1)),
        "latents": latents(1),
    }
    outputs |= {name: trajectory(name) for name in ("ddim", "pndm", "euler")}
    # What the case reads as `reference`.
    image = {"input_ids": prompts(1), "latents": latents(1), "images": torch.from_numpy(picture(pipe))}
    return {"stable_diffusion_v1_4": outputs, "stable_diffusion_v1_4_image": image}


def full_counts(count) -> dict[str, dict[str, int]]:
    with torch.device("meta"):
        tokens, pixels = torch.zeros(1, 77, dtype=torch.int64), torch.zeros(1, 4, 64, 64)
        text, times = torch.zeros(1, 77, 768), torch.zeros(1, dtype=torch.int64)
        counts = {
            "text_encoder": count(text_encoder("full").eval(), tokens),
            "unet": count(unet("full").eval(), pixels, times, text),
            "decoder": count(decoded(autoencoder("full")).eval(), pixels),
        }
    return {f"stable_diffusion_v1_4_{name}": counted for name, counted in counts.items()}


if __name__ == "__main__":
    from make_models import set_weights

    folder = Path(sys.argv[1])
    pipe = pipeline(set_weights)
    files = {"text_encoder": "model", "unet": "diffusion_pytorch_model", "vae": "diffusion_pytorch_model"}
    for name, file in files.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        arrays = {key: value.detach().numpy() for key, value in getattr(pipe, name).state_dict().items()}
        save_file(arrays, folder / name / f"{file}.safetensors")
