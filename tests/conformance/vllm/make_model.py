"""A model of the Qwen3 architecture with random weights, small enough to answer at once on a CPU; for vLLM's Python.

    make_model.py TOKENIZERS FOLDER

TOKENIZERS is the folder of tokenizers and templates (PM_TOKENIZERS): the ids must be a real model's, what it then
says need not be.  The seed is fixed, so that the same folder comes out each time.
"""
import json, lzma, pathlib, sys

import torch
from safetensors.torch import save_file

VOCABULARY, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD, INNER = 151936, 64, 2, 4, 2, 32, 128
CONTEXT = 4096


def weights():
    random = torch.Generator().manual_seed(1)

    def some(*shape):
        return (torch.randn(*shape, generator=random) * 0.05).to(torch.bfloat16)

    def ones(n):
        return torch.ones(n, dtype=torch.bfloat16)

    w = {"model.embed_tokens.weight": some(VOCABULARY, HIDDEN), "model.norm.weight": ones(HIDDEN)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        w |= {
            at + "input_layernorm.weight": ones(HIDDEN),
            at + "post_attention_layernorm.weight": ones(HIDDEN),
            at + "self_attn.q_proj.weight": some(HEADS * HEAD, HIDDEN),
            at + "self_attn.k_proj.weight": some(KV_HEADS * HEAD, HIDDEN),
            at + "self_attn.v_proj.weight": some(KV_HEADS * HEAD, HIDDEN),
            at + "self_attn.o_proj.weight": some(HIDDEN, HEADS * HEAD),
            at + "self_attn.q_norm.weight": ones(HEAD),
            at + "self_attn.k_norm.weight": ones(HEAD),
            at + "mlp.gate_proj.weight": some(INNER, HIDDEN),
            at + "mlp.up_proj.weight": some(INNER, HIDDEN),
            at + "mlp.down_proj.weight": some(HIDDEN, INNER),
        }
    return w


def main(tokenizers, folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD, "hidden_act": "silu",
        "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-6, "rope_theta": 1000000,
        "attention_bias": False, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
        "bos_token_id": 151643, "eos_token_id": 151645}))
    save_file(weights(), folder / "model.safetensors", metadata={"format": "pt"})
    source = tokenizers / "tokenizers/qwen3"
    (folder / "tokenizer.json").write_bytes(lzma.open(source / "tokenizer.json.xz").read())
    (folder / "tokenizer_config.json").write_bytes((source / "tokenizer_config.json").read_bytes())
    (folder / "chat_template.jinja").write_bytes((tokenizers / "templates/qwen3.jinja").read_bytes())


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
