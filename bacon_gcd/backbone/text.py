"""The part of an hf: model that reads text (CLIP, SigLIP): words and images in one space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bacon_gcd.backbone.hf import CONFIG, PREFIX, find_folder, folder_of, quiet, transformers
from bacon_gcd.cluster import unit
from bacon_gcd.config import UserError
from bacon_gcd.system.files import read_json
from bacon_gcd.system.progress import progress

TOKENIZERS = ("tokenizer.json", "vocab.json", "spiece.model")
PROMPT = "a photo of a {}"
WORDS_AT_A_TIME = 64


def reads_text(name: str) -> bool:
    """Whether a backbone of this name can compare images with words; nothing is loaded."""
    folder = find_folder(name) if name.startswith(PREFIX) else None
    if folder is None or not (folder / CONFIG).is_file():
        return False
    has_tokenizer = any((folder / file).is_file() for file in TOKENIZERS)
    return has_tokenizer and isinstance(read_json(folder / CONFIG).get("text_config"), dict)


@dataclass(frozen=True, eq=False)
class TextModel:
    """Words and image features as unit rows that can be compared."""

    network: Any
    """A model of transformers that has `get_text_features`."""
    tokenizer: Any

    @property
    def scale(self) -> float:
        """What cosines are multiplied with before the softmax over words."""
        return float(self.network.logit_scale.detach().exp())

    @torch.no_grad()
    def words(self, words: Sequence[str]) -> Tensor:
        """(W, P) unit rows."""
        found = []
        with progress("words", len(words)) as advance:
            for start in range(0, len(words), WORDS_AT_A_TIME):
                some = words[start : start + WORDS_AT_A_TIME]
                found.append(self._text([PROMPT.format(word) for word in some]))
                advance(len(some))
        return unit(torch.cat(found))

    @torch.no_grad()
    def images(self, features: Tensor) -> Tensor:
        """(N, P) unit rows of (N, D) features of the part that reads images."""
        projection = getattr(self.network, "visual_projection", None)
        found: Tensor = features if projection is None else projection(features)
        return unit(found)

    def _text(self, texts: list[str]) -> Tensor:
        config = self.network.config.text_config
        tokens = self.tokenizer(
            texts,
            padding="max_length",  # SigLIP was trained so; CLIP does not mind
            max_length=config.max_position_embeddings,
            truncation=True,
            return_tensors="pt",
        )
        given = {k: tokens[k] for k in ("input_ids", "attention_mask") if k in tokens}
        found = self.network.get_text_features(**given)
        vectors: Tensor = found if isinstance(found, Tensor) else found.pooler_output
        return vectors.float()


def load_text_model(name: str) -> TextModel:
    """The model hf:NAME_OR_FOLDER with its tokenizer, from this machine."""
    folder, library = folder_of(name), transformers()
    options = {"local_files_only": True, "trust_remote_code": False}
    try:
        with quiet(library):
            tokenizer = library.AutoTokenizer.from_pretrained(str(folder), **options)
            network = library.AutoModel.from_pretrained(
                str(folder), use_safetensors=True, dtype=torch.float32, **options
            )
    except Exception as error:  # one of a dozen types, by version of the library
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise UserError(f"{folder}: transformers cannot read text with it: {reason}") from None
    return TextModel(network.eval(), tokenizer)
