#!/usr/bin/python3
"""The demo model's tokenizer, from text of our own: byte-level BPE in plain Python.

  train.py [DIR]     writes tokenizer.json and tokenizer_config.json into DIR (default: beside this file)
  train.py --gather  takes the text of this tree as it is now into corpus.txt.xz (then train anew)

The text is languages.txt and corpus.txt.xz, so the same files always give the same tokenizer, whatever
the tree says meanwhile: tests/scenario/demo_model.py holds the committed files to that.  The tokenizer
is of the kind that Qwen's models have: NFC, one regular expression, bytes as characters, merges, and
added tokens of which some are special and some are not.
"""
import collections, heapq, json, lzma, pathlib, sys, unicodedata

HERE = pathlib.Path(__file__).resolve().parent
MERGES = 6144 - 256                     # ids 0 .. 6143 are bytes and merges
ADDED = [                               # (content, special): ids 6144 ..
    ("<|endoftext|>", True), ("<|im_start|>", True), ("<|im_end|>", True),
    ("<|vision_start|>", True), ("<|vision_end|>", True), ("<|image_pad|>", True), ("<|audio_pad|>", True),
    ("<think>", False), ("</think>", False), ("<tool_call>", False), ("</tool_call>", False),
    ("<tool_response>", False), ("</tool_response>", False), ("<|fim_prefix|>", False),
]
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SHORT = ("re", "ve", "ll", "s", "t", "m", "d")
SPACES = set("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | {chr(c) for c in range(0x2000, 0x200b)}


def letter(c):
    return unicodedata.category(c)[0] == "L"


def number(c):
    return unicodedata.category(c)[0] == "N"


def run(text, i, test):
    """The end of the run of characters that pass."""
    while i < len(text) and test(text[i]):
        i += 1
    return i


def piece_end(text, i):
    """Where the match of PATTERN that begins at i ends: its alternatives in their order."""
    c, n = text[i], len(text)
    if c == "'":
        for s in SHORT:
            if text[i + 1:i + 1 + len(s)].lower().replace("\u017f", "s") == s:
                return i + 1 + len(s)
    if letter(c):
        return run(text, i, letter)
    if c not in "\r\n" and not number(c) and i + 1 < n and letter(text[i + 1]):
        return run(text, i + 1, letter)
    if number(c):
        return i + 1

    def mark(x):
        return x not in SPACES and not letter(x) and not number(x)
    j = i + 1 if c == " " else i
    if j < n and mark(text[j]):
        return run(text, run(text, j, mark), "\r\n".__contains__)
    end = run(text, i, SPACES.__contains__)
    last = max(text.rfind("\n", i, end), text.rfind("\r", i, end))
    if last >= 0:
        return last + 1
    return end if end == n or end - i == 1 else end - 1


def pieces(text):
    i = 0
    while i < len(text):
        end = piece_end(text, i)
        yield text[i:end]
        i = end


def merges_of(words, count):
    """The `count` merges of the words {bytes: times}: each the most frequent pair, of equals the least."""
    seqs = [([bytes([b]) for b in word], times) for word, times in sorted(words.items())]
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for k, (seq, times) in enumerate(seqs):
        for pair in zip(seq, seq[1:]):
            pairs[pair] += times
            where[pair].add(k)
    # Each pair's newest count is in the heap; those that changed meanwhile are dropped when they come up.
    heap = [(-times, pair) for pair, times in pairs.items()]
    heapq.heapify(heap)
    merges = []
    while len(merges) < count:
        times, best = heapq.heappop(heap) if heap else (0, None)
        if times > -2:
            sys.exit(f"train: the text is too short: only {len(merges)} merges")
        if pairs[best] != -times:
            continue
        merges.append(best)
        changed = set()
        for k in where.pop(best):
            seq, times = seqs[k]
            old = list(zip(seq, seq[1:]))
            new, i = [], 0
            while i < len(seq):
                if i + 1 < len(seq) and (seq[i], seq[i + 1]) == best:
                    new.append(seq[i] + seq[i + 1])
                    i += 2
                else:
                    new.append(seq[i])
                    i += 1
            seqs[k] = new, times
            for pair in old:
                pairs[pair] -= times
            for pair in zip(new, new[1:]):
                pairs[pair] += times
                where[pair].add(k)
            changed.update(old, zip(new, new[1:]))
        for pair in changed:
            if pairs[pair] > 0:
                heapq.heappush(heap, (-pairs[pair], pair))
    return merges


def alphabet():
    """The character that stands for each byte in the file: itself where it can be seen, else from U+0100 on."""
    seen = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    rest = [b for b in range(256) if b not in seen]
    return {b: chr(b) for b in seen} | {b: chr(0x100 + i) for i, b in enumerate(rest)}


def gather():
    root = HERE.parents[2]
    files = sorted(p for folder in ("shm", "proto", "actors", "etc", "deploy", "tests") for p in (root / folder).rglob("*")
                   if p.suffix in (".md", ".h", ".yaml") or p.parent.name == "scenario" and p.suffix == ".py")
    text = "".join(p.read_text() for p in [root / "README.md", *files])
    (HERE / "corpus.txt.xz").write_bytes(lzma.compress(text.encode(), preset=9))


def train(folder):
    # Other languages are a page each beside a tree of English and C: they count more, or they had no merges.
    words = collections.Counter()
    for text, weight in ((lzma.decompress((HERE / "corpus.txt.xz").read_bytes()).decode(), 1),
                         ((HERE / "languages.txt").read_text(), 8)):
        for piece in pieces(unicodedata.normalize("NFC", text)):
            words[piece.encode()] += weight
    name = alphabet()

    def spell(token):
        return "".join(name[b] for b in token)
    merges = merges_of(words, MERGES)
    vocab = {c: i for i, c in enumerate(sorted(name.values()))}
    for left, right in merges:
        vocab.setdefault(spell(left + right), len(vocab))
    # Two ways to one token give it one id, so the first id that is free follows the vocabulary.
    first = len(vocab)
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [{"id": first + i, "content": content, **flags, "special": special}
             for i, (content, special) in enumerate(ADDED)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}, byte_level]},
        "post_processor": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                  "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": [f"{spell(a)} {spell(b)}" for a, b in merges]},
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 32768,
        "bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": None,
        "additional_special_tokens": [content for content, special in ADDED if special],
        "added_tokens_decoder": {str(a.pop("id")): a for a in [dict(a) for a in added]},
        "add_bos_token": False, "clean_up_tokenization_spaces": False, "errors": "replace",
    }
    for file, value in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
        (folder / file).write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["--gather"]:
        gather()
    else:
        train(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
