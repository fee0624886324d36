#!/usr/bin/python3
"""Texts for tests/bench/run prompt: mixed, english, cjk, new, long and chats, the same bytes each time.

    corpus.py FOLDER [MEGABYTES]     writes NAME.txt (8 MB each), long/ (1 MB strings without spaces), chats as JSON

Words come from the demo model's own text, from roots and endings, and from lists below; each text goes
on without repeating itself: sentences, names, identifiers and numbers are drawn anew throughout.
    english   prose: function words, 3,000 words of the tree, 20,000 derived ones, names, numbers
    mixed     a third English, the rest code with names of its own, JSON, Markdown, twelve more languages,
              Chinese and Japanese
    cjk       Chinese and Japanese, half each
    new       words that hardly ever come twice: what a word cache and a vocabulary are of no use for
"""
import itertools, json, lzma, pathlib, random, re, sys
from collections import Counter

MODEL = pathlib.Path(__file__).resolve().parents[2] / "etc/models/demo"
TEXT = lzma.decompress((MODEL / "corpus.txt.xz").read_bytes()).decode()
LANGUAGES = (MODEL / "languages.txt").read_text().splitlines()

FUNCTION = """the of and to a in that is was he for it with as his on be at by i this had not are but from or have an they which
one you were all her she there would their we him been has when who will no more if out so up said what its about than into them
can only other time new some could these two may first then do any like my now over such our man me even most made after also did
many off before must through back years where much your way down should because long each just state those people too mr how
little good world make very year still see own work men day get here between both life being under three never know same last
another while us might great go come since against right came take used himself few house use during without again place
around however home small found thought went say part once general high upon school every don't didn't it's i'm you're""".split()
PREFIX = ["", "", "", "re", "de", "in", "con", "ex", "trans", "sub", "pro", "per", "inter", "un", "pre", "dis", "over", "out", "under", "mis"]
ROOT = """act bank bear bind block board bound break bring build burn call carry cast catch cede ceive change charge claim clear
close cover creat cross cur cut deal dict draw drive duct duce fact fall fer fect fill find fine fix flect flow flux fold form
found frame fuse gain grade gress ground grow guide hand hang hold ject join judge keep labor land lead lect light line load lock
look manage mark match measure mend merge meter mind miss mit mount move name note number order pass pend pict place plant play
plex plic point pone port pose press print prise prove pulse quest quire rain range rate reach read rect rest ride rise rupt scend
scope scribe script sect seg sense sent serve set shape shift sign sist solve sort sound spec spect spire stance state stitute
strain stream stress strict struct sult sume sure sway tact tain take tend tense term test text tone touch tort trace tract train
treat turn vade vail vene vent verse vert vest vey vide view vise voke volve vote walk ward warm warn waste watch water wave weigh
wind wish word work write yield""".split()
SUFFIX = ["", "", "", "s", "ed", "ing", "er", "ers", "ion", "ions", "ional", "able", "ability", "ive", "ively", "ment", "ments", "ly", "ness", "less", "ful", "or", "ors", "al", "ance", "ence"]
ONSET = "b br c ch cl d dr f fl g gr h j k kl l m n p pr qu r s sch sh sk st t th tr v w z".split()
VOWEL = "a e i o u ai ea ee ie oa ou".split()
CODA = ["", "", "n", "r", "l", "s", "m", "ck", "nd", "rt", "lm", "st", "x"]
ZH = """的 一 是 在 不 了 有 和 人 这 中 大 为 上 个 国 我 以 要 他 时 来 用 们 生 到 作 地 于 出 就 分 对 成 会 可 主 发 年 动 同 工 也 能 下 过
我们 他们 可以 没有 自己 因为 所以 如果 但是 这个 那个 什么 怎么 问题 时间 工作 学生 老师 学校 中国 世界 社会 经济 发展 技术 科学 研究 系统 数据 信息 计算 网络 服务 请求 模型 结果 方法 内容
公司 市场 产品 客户 管理 企业 城市 北京 上海 今天 明天 昨天 现在 以后 之前 开始 结束 需要 应该 必须 能够 已经 正在 非常 比较 重要 不同 相同 增加 减少 提高 使用 使得 通过 根据 关于 进行
朋友 家庭 孩子 父母 生活 健康 医院 医生 天气 下雨 火车 车站 飞机 道路 桥梁 河流 山水 花园 树木 动物 音乐 电影 故事 历史 文化 语言 文字 翻译 文章 报告 会议 讨论 决定 计划 项目 目标 原因 影响
温度 速度 长度 重量 数量 质量 价格 成本 利润 政府 法律 权利 责任 安全 环境 能源 材料 机器 设备 程序 代码 缓存 内存 节点 路由 队列 等待 处理 分配 选择 预测 命中 延迟 吞吐 响应 连接 错误""".split()
JA = """これ それ あれ ここ そこ この その あの 私 私たち 彼 彼女 人 時間 今日 明日 昨日 年 月 日 仕事 会社 学校 先生 学生 友達 家族 子供 世界 日本 東京 大阪 電車 駅 道 天気 雨 雪 空 海 山 川 花 木 動物
問題 答え 質問 理由 結果 方法 計画 会議 報告 研究 技術 科学 情報 計算 通信 記憶 要求 模型 予測 選択 処理 待ち 行列 速度 温度 価格 市場 製品 管理 企業 文化 歴史 言語 文字 翻訳 物語 音楽 映画
サーバー データ ネットワーク システム プログラム コンピューター キャッシュ メモリ ルーター リクエスト モデル トークン エラー テスト サービス ユーザー ファイル コード インターネット レポート プロジェクト""".split()
PARTICLE = "は が を に で と も の へ から まで より など について として".split()
VERB = """です ます でした ません します しました している しています された されます できます なります なりました あります ありません 思います 考えます
行きます 来ました 見ます 食べる 書いた 読んで 話した 聞いて 待っている 始まる 終わった 必要がある かもしれない でしょう と言った""".split()
HAN = [c for row in range(16, 56) for cell in range(1, 95)
       if (c := bytes((0xa0 + row, 0xa0 + cell)).decode("gb2312", "ignore"))]       # the commoner half of the standard
KANA = "アイウエオカキクケコサシスセソタチツテトナニヌネノハヒフヘホマミムメモヤユヨラリルレロワンガギグゲゴザジズゼゾダデドバビブベボパピプペポー"
KEYWORDS = set("""auto break case char const continue default do double else enum extern float for goto if inline int long register return
short signed sizeof static struct switch typedef union unsigned void volatile while bool true false def import from class self None
True False and or not in is lambda with as try except raise yield assert pass global elif print len range size_t uint8_t uint16_t
uint32_t uint64_t int64_t NULL function let var new this null async await define include ifdef endif pragma once""".split())


class Writer:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        words = Counter(re.findall(r"[a-z]{3,}", TEXT.lower()))
        # Flatter than text is: rare words come more often than anyone would write them.
        self.lexicon = [w for w, _ in words.most_common()]
        self.lexicon_weights = list(itertools.accumulate(words[w] ** 0.6 for w in self.lexicon))
        self.function_weights = list(itertools.accumulate(1 / (8 + i) for i in range(len(FUNCTION))))
        self.zh_weights = list(itertools.accumulate(1 / (20 + i) for i in range(len(ZH))))
        self.ja_weights = list(itertools.accumulate(1 / (20 + i) for i in range(len(JA))))
        self.code = [line for line in TEXT.split("\n") if re.search(r"[;{}()=]", line) and len(line) < 120]
        self.foreign = [line.split() for line in LANGUAGES if line.count(" ") > 6 and sum(map(str.isalpha, line)) > 60 and not line.isascii()]

    def pick(self, items):
        return items[int(self.rng.random() * len(items))]

    def many(self, items, weights, k):
        return self.rng.choices(items, cum_weights=weights, k=k)

    def derived(self):
        return self.pick(PREFIX) + self.pick(ROOT) + self.pick(SUFFIX)

    def coined(self, syllables):
        return "".join(self.pick(ONSET) + self.pick(VOWEL) + self.pick(CODA) for _ in range(syllables))

    def number(self):
        r = self.rng.random()
        n = int(10 ** (self.rng.random() * 7))
        return str(n) if r < 0.5 else f"{n:,}" if r < 0.7 else f"{self.rng.random() * 1000:.{1 + int(r * 30) % 3}f}" \
            if r < 0.9 else str(1800 + int(self.rng.random() * 226))

    def sentence(self):
        n = 6 + int(self.rng.random() * 18)
        function = iter(self.many(FUNCTION, self.function_weights, n))
        lexicon = iter(self.many(self.lexicon, self.lexicon_weights, n))
        out = []
        for i in range(n):
            r = self.rng.random()
            word = next(function) if r < 0.45 else next(lexicon) if r < 0.9 else self.derived() if r < 0.955 else \
                self.coined(2).capitalize() if r < 0.985 else self.number()
            out.append(word + "," if r * 1000 % 10 < 0.8 and i < n - 1 else word)
        out[0] = out[0][0].upper() + out[0][1:]
        text = " ".join(out)
        r = self.rng.random()
        return text + ("." if r < 0.86 else "?" if r < 0.91 else "!" if r < 0.93 else ":" if r < 0.96 else "; and so on.")

    def english(self):
        text = " ".join(self.sentence() for _ in range(3 + int(self.rng.random() * 5)))
        if self.rng.random() < 0.15:
            text = f"\u201c{text}\u201d said {self.coined(2).capitalize()}."
        return text + "\n\n"

    def identifier(self):
        words = [self.pick(self.lexicon) if self.rng.random() < 0.75 else self.derived() for _ in range(1 + int(self.rng.random() * 3))]
        r = self.rng.random()
        return "_".join(words) if r < 0.6 else words[0] + "".join(w.capitalize() for w in words[1:]) if r < 0.85 else \
            "".join(w.capitalize() for w in words) if r < 0.95 else "_".join(words).upper()

    def source(self):
        names = {}

        def other(match):
            word = match[0]
            if word in KEYWORDS or len(word) < 3:
                return word
            if word[0].isdigit():
                return self.number().replace(",", "")
            if word not in names:
                names[word] = self.identifier()
            return names[word]
        start = int(self.rng.random() * (len(self.code) - 40))
        return "".join(re.sub(r"\w+", other, line) + "\n" for line in self.code[start:start + 12 + int(self.rng.random() * 20)]) + "\n"

    def json(self):
        def value(depth):
            r = self.rng.random()
            if depth and r < 0.3:
                return "{" + ", ".join(f'"{self.identifier()}": {value(depth - 1)}' for _ in range(2 + int(self.rng.random() * 4))) + "}"
            if depth and r < 0.4:
                return "[" + ", ".join(value(depth - 1) for _ in range(1 + int(self.rng.random() * 4))) + "]"
            return f'"{self.sentence()}"' if r < 0.55 else f'"{self.rng.getrandbits(64):016x}"' if r < 0.65 else \
                self.pick(["true", "false", "null"]) if r < 0.75 else self.number().replace(",", "")
        return "{" + ", ".join(f'"{self.identifier()}": {value(2)}' for _ in range(3 + int(self.rng.random() * 4))) + "}\n"

    def markdown(self):
        rows = "".join("| " + " | ".join(self.pick([self.identifier(), self.number(), self.derived()]) for _ in range(4)) + " |\n"
                       for _ in range(4 + int(self.rng.random() * 6)))
        return f"## {self.sentence()}\n\n| a | b | c | d |\n| --- | --- | --- | --- |\n{rows}\n" + \
            "".join(f"- **{self.derived()}**: {self.sentence()}\n" for _ in range(3)) + "\n"

    def other_language(self):
        words = self.pick(self.foreign)
        letters = [c for w in words for c in w.lower() if c.isalpha()]
        # Words of the language, and others of its letters: inflected and rare words are most of a text's vocabulary.
        return " ".join(self.pick(words) if self.rng.random() < 0.85 else
                        self.pick(words)[:3] + "".join(self.pick(letters) for _ in range(2 + int(self.rng.random() * 5)))
                        for _ in range(40)) + ".\n\n"

    def chinese(self):
        out = []
        for _ in range(4 + int(self.rng.random() * 6)):
            words = self.many(ZH, self.zh_weights, 3 + int(self.rng.random() * 8))
            out.append("".join(w if self.rng.random() < 0.8 else self.pick(HAN) + self.pick(HAN) for w in words))
        return "，".join(out) + "。"

    def japanese(self):
        out = []
        for _ in range(3 + int(self.rng.random() * 4)):
            words = self.many(JA, self.ja_weights, 2 + int(self.rng.random() * 4))
            out.append("".join((w if self.rng.random() < 0.8 else self.pick(HAN) + self.pick(HAN) if self.rng.random() < 0.5 else
                                "".join(self.pick(KANA) for _ in range(4))) + self.pick(PARTICLE) for w in words) + self.pick(VERB))
        return "、".join(out) + "。"

    def cjk(self):
        one = self.chinese if self.rng.random() < 0.5 else self.japanese
        return "".join(one() for _ in range(2 + int(self.rng.random() * 6))) + "\n"

    def mixed(self):
        r = self.rng.random()
        return self.english() if r < 0.4 else self.source() if r < 0.58 else self.json() if r < 0.68 else self.markdown() if r < 0.76 \
            else self.other_language() if r < 0.9 else self.cjk()

    def new(self):
        return " ".join(self.coined(1 + int(self.rng.random() * 3)) + (self.derived() if self.rng.random() < 0.5 else "") for _ in range(14)) + ".\n"

    def text(self, part, size):
        out, n = [], 0
        while n < size:
            piece = part()
            out.append(piece)
            n += len(piece.encode())
        return "".join(out)


def strings(size):
    """Without one space: what makes a piece as long as the text."""
    rng = random.Random(9)
    letters = "abcdefghijklmnopqrstuvwxyz"
    writer = Writer(10)
    return {
        "one_letter": "a" * size,
        "letters": "".join(rng.choices(letters, k=size)),
        "words": "".join(writer.derived() for _ in range(size // 5))[:size],
        "han": "".join(rng.choices(HAN, k=size // 3)),
        "marks": "-=" * (size // 2),
        "base64": "".join(rng.choices(letters + letters.upper() + "0123456789+/", k=size)),
    }


FUNCTIONS = [{"type": "function", "function": {
    "name": name, "description": f"Says what is known of a {name[4:]}.", "parameters": {
        "type": "object", "properties": {"name": {"type": "string", "description": "Which one"}, "limit": {"type": "integer"}},
        "required": ["name"]}}} for name in ("get_train", "get_station")]


def conversation(writer, messages, size):
    """A system turn, then question and answer in turn, all together of some `size` bytes."""
    roles = ["system"] + ["user", "assistant"] * (messages // 2)
    return [{"role": role, "content": writer.text(writer.english if i % 6 else writer.source, size // messages)[:size // messages]}
            for i, role in enumerate(roles[:messages])]


def write_chats(folder, scale):
    """talk.json: a template's context of 31 messages, 26 kB.  turn-0.json: a request of 400 kB (100,000 tokens of a
    large model), turn-1.json ..: each goes on from it by an answer and a
    question, 200 tokens.  cold-0.json ..: 62 kB that nobody has seen."""
    writer = Writer(20)
    talk = {"messages": conversation(writer, 31, 26000), "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "talk.json").write_text(json.dumps({**talk, "tools": None}))
    (folder / "talk_tools.json").write_text(json.dumps({**talk, "tools": FUNCTIONS}))
    long = conversation(writer, 250, int(400000 * scale))
    for i in range(10):
        tail = [{"role": role, "content": writer.text(writer.english, 400)[:400]} for role in ("assistant", "user")] if i else []
        body = {"model": "m", "stream": True, "messages": [*long, *tail]}
        (folder / f"turn-{i}.json").write_text(json.dumps(body, ensure_ascii=False))
        body = {"model": "m", "messages": conversation(writer, 20, int(62000 * scale))}
        (folder / f"cold-{i}.json").write_text(json.dumps(body, ensure_ascii=False))


def write(folder, size):
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(("mixed", "english", "cjk", "new")):
        writer = Writer(seed)
        (folder / f"{name}.txt").write_text(writer.text(getattr(writer, name), size))
    (folder / "long").mkdir(exist_ok=True)
    for name, text in strings(min(size, 1 << 20)).items():
        (folder / "long" / f"{name}.txt").write_text(text)
    write_chats(folder, min(1, size / (8 << 20)))


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    write(pathlib.Path(sys.argv[1]), int(float(sys.argv[2] if len(sys.argv) > 2 else 8) * (1 << 20)))
