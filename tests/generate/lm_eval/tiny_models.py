"""Train the tiny language models that answer the fixture tasks: ignorant, middling and able."""

import random
from pathlib import Path
from typing import Any

END = "<|endoftext|>"
STEPS = {"m0": 0, "m1": 150, "m2": 600}
"""Training steps of each model; its seed is the number in its name."""


def train_models(folder: Path) -> None:
    """Train the models that are not in ``folder`` yet."""
    for seed, (name, steps) in enumerate(STEPS.items()):
        if not (folder / name / "config.json").exists():
            _train(folder / name, seed, steps)


def _train(path: Path, seed: int, steps: int) -> None:
    import torch

    torch.manual_seed(seed)
    tokenizer = _byte_tokenizer()
    model = _small_gpt2(len(tokenizer))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rng = random.Random(100 + seed)
    for _ in range(steps):
        sequences = [tokenizer(_training_text(rng))["input_ids"] for _ in range(64)]
        longest = max(map(len, sequences))
        ids = torch.tensor([s + [0] * (longest - len(s)) for s in sequences])
        loss = model(input_ids=ids, labels=ids.masked_fill(ids == 0, -100)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)


def _training_text(rng: random.Random) -> str:
    a, b = rng.randint(0, 9), rng.randint(0, 9)
    shown = a + b + (rng.choice([-1, 1]) if rng.random() < 0.2 else 0)
    return f"{a}+{b}={shown} " + ("yes" if shown == a + b else "no") + " "


def _small_gpt2(vocabulary: int) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=vocabulary,
            n_positions=128,
            n_embd=64,
            n_layer=2,
            n_head=2,
            bos_token_id=0,
            eos_token_id=0,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
    )


def _byte_tokenizer() -> Any:
    """One token per byte, built here so that nothing is downloaded."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {END: 0, **{byte: i + 1 for i, byte in enumerate(alphabet)}}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = dict.fromkeys(("eos_token", "bos_token", "pad_token"), END)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=128, **special)
