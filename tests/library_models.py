"""Tiny models as transformers saves them, with random weights: real files, real code paths."""

import json
from pathlib import Path

import torch

SIZE, DIM, PATCH = 32, 24, 8
MEAN, STD = [0.5, 0.4, 0.3], [0.2, 0.3, 0.25]
SHAPE = {
    "hidden_size": DIM,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": SIZE,
    "patch_size": PATCH,
}
TEXT = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 64,
    "max_position_embeddings": 8,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
PREPROCESSOR = {
    "size": {"shortest_edge": 40},
    "crop_size": {"height": SIZE, "width": SIZE},
    "do_center_crop": True,
    "do_normalize": True,
    "rescale_factor": 1 / 255,
    "image_mean": MEAN,
    "image_std": STD,
}


def network_of(kind: str):
    """A network with random weights that do not depend on what was drawn before."""
    import transformers as t

    makers = {
        "dinov2": lambda: t.Dinov2Model(t.Dinov2Config(**SHAPE, mlp_ratio=2)),
        "dinov3": lambda: t.DINOv3ViTModel(t.DINOv3ViTConfig(**SHAPE)),
        "vit": lambda: t.ViTModel(t.ViTConfig(**SHAPE)),
        "vit classifier": lambda: t.ViTForImageClassification(t.ViTConfig(**SHAPE)),
        "clip vision": lambda: t.CLIPVisionModel(t.CLIPVisionConfig(**SHAPE)),
        "clip": lambda: t.CLIPModel(
            t.CLIPConfig(text_config=TEXT, vision_config=SHAPE, projection_dim=16)
        ),
        "siglip vision": lambda: t.SiglipVisionModel(t.SiglipVisionConfig(**SHAPE)),
        "convnext": lambda: t.ConvNextModel(
            t.ConvNextConfig(hidden_sizes=[8, 8, 16, DIM], depths=[1, 1, 1, 1], image_size=SIZE)
        ),
        "swin": lambda: t.SwinModel(
            t.SwinConfig(
                image_size=SIZE,
                patch_size=2,
                embed_dim=DIM // 2,
                depths=[1, 1],
                num_heads=[1, 2],
                window_size=4,
            )
        ),
        "bert": lambda: t.BertModel(t.BertConfig(**{k: TEXT[k] for k in list(TEXT)[:5]})),
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return makers[kind]().eval()


def save_tokenizer(folder: Path, words) -> None:
    """A tokenizer that knows these words, as transformers saves it."""
    import tokenizers as t
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: n for n, word in enumerate(["<s>", "</s>", "<pad>", "<unk>", *words])}
    made = t.Tokenizer(t.models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = t.pre_tokenizers.Whitespace()
    made.post_processor = t.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=made,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
    ).save_pretrained(folder)


def save_model(folder: Path, kind: str = "dinov2", **preprocessor) -> Path:
    """A model folder with config, safetensors and preprocessor."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    network_of(kind).save_pretrained(folder)
    values = PREPROCESSOR | preprocessor
    (folder / "preprocessor_config.json").write_text(json.dumps(values))
    return folder
