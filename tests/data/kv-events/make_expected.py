#!/usr/bin/env python3
"""Rebuilds expected.txt, and the vectors the published set names but does not hold.

expected.txt: one line an event, "<vector>\t<normalised JSON>", made from each vector's `decoded`
field, not from its bytes; the unit test compares what the decoder prints with it.
Run in this folder: ./make_expected.py
"""
import glob
import json
import os
import struct

os.chdir(os.path.dirname(os.path.abspath(__file__)))
TOKENS = json.load(open("block_hash_vectors.json"))["tokens"]
H = [2859923585737284816, 7098273821515354030]
SHA = ["825bd78e363275cd715561be6e1d8ace30d2dfa0185d2fcd27b07d5944a1dcd0",
       "39f3236b90f3085ab7fd492a1bed3f08cdfc6ce3660a5ade6282226eb1e08fae"]


def b(text):
    return {"__bytes__": text}


def stored(**more):
    event = {"type": "BlockStored", "block_hashes": H, "parent_block_hash": None,
             "token_ids": TOKENS, "block_size": 16, "lora_id": None, "medium": "GPU",
             "lora_name": None}
    event.update(more)
    return event


MINE = {
    "g2_v0.11.0_block_stored_bytes": [1795000000.125, [
        ["BlockStored", [b(SHA[1])], b(SHA[0]), TOKENS[16:], 16, None, "GPU"]], 0],
    "g4a_v0.17.0_block_stored_salt": [1795000000.125, [
        ["BlockStored", H, None, TOKENS, 16, None, "GPU", None, [["tenant-a-9f2c"], None]]], 0],
    "g5_v0.26.0_block_stored_multimodal": [1795000000.125, [stored(
        extra_keys=[[["4f5e6d7c", 3]], [["4f5e6d7c", -13]]], group_idx=0,
        kv_cache_spec_kind="full_attention")], 0],
    "g5_hybrid_mamba_masked_store": [1795000000.125, [stored(
        block_hashes=H[1:], extra_keys=[None], group_idx=1, kv_cache_spec_kind="mamba")], 0],
    "g6_main_session_ownership": [1795000000.125, [stored(
        extra_keys=[None, None], group_idx=0, kv_cache_spec_kind="full_attention",
        locality="LOCAL", ownership="tier-2", session_id="s-17"),
        {"type": "BlockRemoved", "block_hashes": H[:1], "medium": "GPU", "group_idx": 0,
         "ownership": "tier-2"}], 0],
    "sglang_v0.5.9_stored_removed": [1795000000.125, [
        ["BlockStored", [-9053405620103645747], None, TOKENS[:16], 16, None, "GPU"],
        ["BlockStored", [4176131217838343946], -9053405620103645747, TOKENS[16:], 16, None, "GPU"],
        ["BlockRemoved", [-9053405620103645747, 4176131217838343946], "GPU"]], 1],
}
MAP16 = {"x_nonminimal_map16": [1795000000.125, [stored()], 0]}


def pack(v, map16=False):
    if v is None:
        return b"\xc0"
    if isinstance(v, float):
        return b"\xcb" + struct.pack(">d", v)
    if isinstance(v, int):
        if 0 <= v < 128:
            return bytes([v])
        if v < 0:
            return bytes([v & 255]) if v >= -32 else b"\xd3" + struct.pack(">q", v)
        for code, form, top in ((0xCC, "B", 8), (0xCD, "H", 16), (0xCE, "I", 32), (0xCF, "Q", 64)):
            if v < 1 << top:
                return bytes([code]) + struct.pack(">" + form, v)
    if isinstance(v, str):
        raw = v.encode()
        head = bytes([0xA0 | len(raw)]) if len(raw) < 32 else b"\xd9" + bytes([len(raw)])
        return head + raw
    if isinstance(v, dict) and "__bytes__" in v:
        raw = bytes.fromhex(v["__bytes__"])
        return b"\xc4" + bytes([len(raw)]) + raw
    if isinstance(v, dict):
        head = b"\xde" + struct.pack(">H", len(v)) if map16 or len(v) > 15 else bytes([0x80 | len(v)])
        return head + b"".join(pack(k) + pack(x, map16) for k, x in v.items())
    head = bytes([0x90 | len(v)]) if len(v) < 16 else b"\xdc" + struct.pack(">H", len(v))
    return head + b"".join(pack(x, map16) for x in v)


def u64(h):
    if isinstance(h, dict):
        return int(h["__bytes__"][-16:], 16)
    return h & (1 << 64) - 1


def plain(v):
    if isinstance(v, dict) and "__bytes__" in v:
        return v["__bytes__"]
    if isinstance(v, list):
        return [plain(x) for x in v]
    return v


STORED = ["type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium",
          "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind"]
REMOVED = ["type", "block_hashes", "medium", "group_idx"]


def normal(event, rank):
    if isinstance(event, list):
        event = dict(zip(REMOVED if event[0] == "BlockRemoved" else STORED, event))
    kind = event["type"]
    if kind not in ("BlockStored", "BlockRemoved", "AllBlocksCleared"):
        return None
    cleared = kind == "AllBlocksCleared"
    parent = event.get("parent_block_hash")
    medium = event.get("medium")
    lora = event.get("lora_name")
    return {
        "type": kind, "rank": rank,
        "hashes": ["0x%016x" % u64(h) for h in event.get("block_hashes", [])],
        "parent": None if parent is None else "0x%016x" % u64(parent),
        "token_ids": plain(event.get("token_ids") or []),
        "block_size": event.get("block_size") if kind == "BlockStored" else None,
        "lora": lora if lora is not None else event.get("lora_id"),
        "medium": medium if medium is not None else None if cleared else "GPU",
        "group": event.get("group_idx"),
        "extra_keys": plain(event.get("extra_keys")),
    }


def main():
    for name, decoded in list(MINE.items()) + list(MAP16.items()):
        data = pack(decoded, name in MAP16)
        open(name + ".bin", "wb").write(data)
        json.dump({"name": name, "payload_hex": data.hex(), "decoded": decoded},
                  open(name + ".json", "w"), indent=1)
    with open("expected.txt", "w") as out:
        for path in sorted(glob.glob("*.bin")):
            name = path[:-4]
            decoded = json.load(open(name + ".json"))["decoded"]
            if isinstance(decoded, dict):
                continue  # not decodable: the test knows
            rank = decoded[2] if len(decoded) > 2 else None
            for event in decoded[1]:
                line = normal(event, rank)
                if line:
                    out.write("%s\t%s\n" % (name, json.dumps(line)))


if __name__ == "__main__":
    main()
