#!/usr/bin/python3
"""Makes set.jsonl of hand_values.txt, hand_bodies.txt and the templates below: make.py >set.jsonl.  The same every time.

What is shaped like a secret is drawn here from parts, so that no file holds one as such; in set.jsonl its first sign is
written as a JSON escape for the same reason."""
import base64, json, pathlib, random, re, sys, unicodedata

HERE = pathlib.Path(__file__).parent
TAGS = {"e": "email", "p": "phone", "i": "iban", "c": "card", "n": "ssn", "s": "secret"}
DIGIT, LOWER = "0123456789", "abcdefghijklmnopqrstuvwxyz"
ALNUM = DIGIT + LOWER + LOWER.upper()
HEX = DIGIT + "abcdef"

# Secrets: name: (what stands before, which signs follow, at least how many of them).
SHAPES = {
    "aws": ("AK" + "IA", LOWER.upper() + "234567", 16),
    "asia": ("AS" + "IA", LOWER.upper() + "234567", 16),
    "awssecret": ("", ALNUM + "/+", 40),
    "ghp": ("gh" + "p_", ALNUM, 36),
    "gho": ("gh" + "o_", ALNUM, 36),
    "ghs": ("gh" + "s_", ALNUM, 36),
    "glpat": ("gl" + "pat-", ALNUM + "_-", 20),
    "oai": ("s" + "k-", ALNUM, 48),
    "oaiproj": ("s" + "k-proj-", ALNUM + "_-", 40),
    "oaisvc": ("s" + "k-svcacct-", ALNUM + "_-", 40),
    "ant": ("s" + "k-ant-api03-", ALNUM + "_-", 80),
    "orouter": ("s" + "k-or-v1-", HEX, 64),
    "goog": ("AI" + "za", ALNUM + "_-", 35),
    "gocspx": ("GOC" + "SPX-", ALNUM + "_-", 28),
    "xoxb": ("xo" + "xb-", DIGIT, 11),
    "xoxp": ("xo" + "xp-", DIGIT, 11),
    "sklive": ("s" + "k_live_", ALNUM, 24),
    "sktest": ("s" + "k_test_", ALNUM, 24),
    "rklive": ("r" + "k_live_", ALNUM, 24),
    "pklive": ("p" + "k_live_", ALNUM, 24),
    "hf": ("h" + "f_", ALNUM, 34),
    "npm": ("np" + "m_", ALNUM, 36),
    "pypi": ("py" + "pi-AgEIcHlwaS5vcmc", ALNUM + "_-", 50),
    "dop": ("do" + "p_v1_", HEX, 64),
    "bearer": ("", ALNUM, 32),
    "hex32": ("", HEX, 32),
    "hex40": ("", HEX, 40),
    "hex64": ("", HEX, 64),
    "b64": ("", ALNUM + "/+", 64),
    "b64long": ("", ALNUM + "/+", 86),
    "b6443": ("", ALNUM, 43),
    "b6422": ("", ALNUM, 22),
}
PEM = {"pem": "PRIVATE KEY", "pemrsa": "RSA PRIVATE KEY", "pemec": "EC PRIVATE KEY", "pemssh": "OPENSSH PRIVATE KEY",
       "pemenc": "ENCRYPTED PRIVATE KEY", "pgp": "PGP PRIVATE KEY BLOCK", "pempub": "PUBLIC KEY", "pemcert": "CERTIFICATE",
       "pgppub": "PGP PUBLIC KEY BLOCK"}
SECRET_NAMES = [n for n in SHAPES if not n.startswith(("hex", "b64")) and n not in ("awssecret", "bearer", "pklive")]

draw = random.Random(20260305)


def some(alphabet, count):
    """count signs, at least one letter and one digit where the alphabet has both and there is room."""
    while True:
        s = "".join(draw.choice(alphabet) for _ in range(count))
        mixed = any(c in DIGIT for c in alphabet) and any(c in LOWER for c in alphabet.lower())
        if s[:1] in "-_" or s[-1:] in "-_":
            continue  # where a token ends must not be a matter of taste
        if count < 12 or not mixed or (re.search(r"\d", s) and re.search(r"[A-Za-z]", s)):
            return s


def b64url(value):
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")


def secret(name, short=0):
    if name in PEM:
        body = "\n".join(some(ALNUM + "/+", 64) for _ in range(3))
        return f"-----BEGIN {PEM[name]}-----\n{body}\n-----END {PEM[name]}-----"
    if name == "pemline":
        return secret("pem").replace("\n", "\\n")
    if name == "uuid":
        h = some(HEX, 32)
        return "-".join((h[:8], h[8:12], "4" + h[13:16], "a" + h[17:20], h[20:]))
    if name == "canary":
        return "AK" + "IACANARY" + "0" * 10
    if name == "jwt":
        return ".".join((b64url({"alg": "HS256", "typ": "JWT"}), b64url({"sub": some(DIGIT, 10)}), some(ALNUM, 43)))
    if name == "ghpat":
        return "git" + "hub_pat_" + some(ALNUM, 22) + "_" + some(ALNUM, 59)
    if name == "sg":
        return "S" + "G." + some(ALNUM, 22) + "." + some(ALNUM, 43)
    if name == "tg":
        return some("123456789", 9) + ":" + "A" + "A" + some(ALNUM, 33)
    if name == "slackhook":
        return "https://hooks.sl" + "ack.com/services/T" + some(ALNUM.upper(), 9) + "/B" + some(ALNUM.upper(), 9) + "/" + some(ALNUM, 24)
    before, alphabet, count = SHAPES[name]
    s = before + some(alphabet, count - short)
    if name in ("xoxb", "xoxp") and not short:
        s += "-" + some(DIGIT, 12) + "-" + some(ALNUM, 24)
    return s


KNOWN = "|".join(sorted([*SHAPES, *PEM, "pemline", "uuid", "canary", "jwt", "ghpat", "sg", "tg", "slackhook"], key=len, reverse=True))


def filled(text):
    return re.sub(r"\{(" + KNOWN + r")(?:-(\d+))?\}", lambda m: secret(m[1], int(m[2] or 0)), text)


def plain(text):
    """The escapes of hand_values.txt."""
    names = {"n": "\n", "t": "\t", "\\": "\\", "|": "|"}
    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", lambda m: chr(int(m[1], 16)) if m[1] else names[m[2]], text)


# ---- numbers with check digits ----

def luhn_digit(payload):
    total = sum(d if i % 2 else d * 2 - 9 * (d > 4) for i, d in enumerate(int(c) for c in reversed(payload)))
    return str(-total % 10)


def card(prefix, length):
    payload = prefix + some(DIGIT, length - 1 - len(prefix))
    return payload + luhn_digit(payload)


def iban(country, bban, off=0):
    number = int("".join(str(int(c, 36)) for c in bban + country + "00"))
    return f"{country}{(98 - number % 97 + off - 2) % 97 + 2:02}{bban}"


CARDS = [("4", 16), ("51", 16), ("55", 16), ("2221", 16), ("2720", 16), ("34", 15), ("37", 15), ("6011", 16), ("65", 16),
         ("300", 14), ("36", 14), ("3528", 16), ("3589", 16), ("62", 16), ("4", 19)]
IBANS = [("DE", 18, ""), ("GB", 14, "NWBK"), ("FR", 23, ""), ("ES", 20, ""), ("NL", 10, "RABO"), ("BE", 12, ""), ("CH", 17, ""),
         ("AT", 16, ""), ("IT", 22, "X"), ("PL", 24, ""), ("PT", 21, ""), ("SE", 20, ""), ("NO", 11, ""), ("DK", 14, ""),
         ("FI", 14, ""), ("IE", 14, "AIBK"), ("SA", 20, ""), ("AE", 19, ""), ("TR", 22, ""), ("LU", 16, ""), ("CZ", 20, ""),
         ("RO", 16, "RNCB"), ("IL", 19, ""), ("QA", 21, "QNBA"), ("EG", 25, "")]


def groups(s, sizes, sep):
    out, at = [], 0
    for n in sizes:
        out.append(s[at : at + n])
        at += n
    return sep.join(g for g in out if g)


def card_groups(s, sep):
    return groups(s, {15: (4, 6, 5), 14: (4, 6, 4)}.get(len(s), (4, 4, 4, 4, 3)), sep)


def ssn(area=None, group=None, serial=None, sep="-"):
    area = area if area is not None else draw.choice([n for n in range(1, 900) if n != 666])
    return f"{area:03}{sep}{draw.randint(1, 99) if group is None else group:02}{sep}{draw.randint(1000, 9999) if serial is None else serial:04}"


# ---- guises ----

def in_digits(zero):
    return lambda s: "".join(chr(zero + int(c)) if c in DIGIT else c for c in s)


def full_width(s):
    return "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in s)


SEPARATORS = [" ", "-", "\u00a0", "\u202f", "\u2009", "\u2011", "\u2013", ""]
SCRIPTS = [lambda s: s, lambda s: s, full_width, in_digits(0x660), in_digits(0x966), in_digits(0x6F0), in_digits(0x9E6)]

# Neutral: no word in them makes a number a phone number, nor says that it is none.
CARRIERS = {
    "en": ["Please keep {} for me.", "It says {} on the paper.", "Why is {} wrong?", "Here: {}. Thanks!"],
    "de": ["Auf dem Zettel steht {}.", "Bitte {} eintragen.", "Stimmt „{}“ so?"],
    "fr": ["Sur la feuille il y a {}.", "Notez {} s'il vous plaît.", "C'est « {} » ?"],
    "es": ["En el papel pone {}.", "¿Está bien {}?", "Anota {} por favor."],
    "pt": ["No papel está {}.", "Anote {} por favor."],
    "ja": ["紙には{}と書いてあります。", "「{}」を確認してください。"],
    "zh": ["纸上写着{}。", "请记下{}，谢谢"],
    "ar": ["مكتوب على الورقة {} فقط", "احفظ {} من فضلك"],
    "hi": ["कागज़ पर {} लिखा है।", "कृपया {} देखें"],
    "ru": ["На листе написано {}.", "Запиши {}, пожалуйста"],
    "code": ['x = "{}"', "print('{}')", "/* {} */", "const v = `{}`;", "- value: {}", '{{"value": "{}"}}', "<td>{}</td>", "a,{},b", "# {}"],
    "markdown": ["**{}**", "| a | {} |", "> {}", "* {}\n* none", "`{}`"],
}
CUES = [("en", "phone: {}", "020 7946 0{:03}"), ("en", "my mobile is {}", "07700 900{:03}"), ("en", "fax {}", "0800 496 0{:03}"),
        ("de", "Tel. {}", "030 23125 {:03}"), ("de", "Handynummer: {}", "0171 3920 {:03}"), ("de", "Mobil {}", "0152 28817 {:03}"),
        ("fr", "Téléphone : {}", "01 99 00 1{:03}"), ("fr", "mon portable {}", "06 39 98 1{:03}"),
        ("es", "Teléfono {}", "912 345 {:03}"), ("es", "móvil: {}", "612 345 {:03}"),
        ("pt", "telemóvel {}", "912 345 {:03}"), ("pt", "Celular: {}", "(11) 91234-5{:03}"),
        ("ja", "電話番号は{}です", "03-1234-5{:03}"), ("ja", "携帯：{}", "090-1234-5{:03}"),
        ("zh", "手机：{}", "13800138{:03}"), ("zh", "电话{}", "010-12345{:03}"),
        ("ar", "هاتف: {}", "0551234{:03}"), ("hi", "फ़ोन नंबर {}", "9876543{:03}"), ("ru", "тел. {}", "8 (495) 123-4{:03}"),
        ("ru", "Телефон: {}", "8916123{:03}")]
ABROAD = ["+1 212 555 0{:03}", "+49 30 23125 {:03}", "+44 20 7946 0{:03}", "+33 1 99 00 1{:03}", "+34 612 345 {:03}",
          "+351 912 345 {:03}", "+55 11 91234-5{:03}", "+81 3-1234-5{:03}", "+86 138 0013 8{:03}", "+91 98765 43{:03}",
          "+7 (495) 123-4{:03}", "+971 4 123 4{:03}", "+41 44 668 1{:03}", "+61 2 5550 1{:03}", "+972 2 123 4{:03}"]
NAMES = ["anna", "j.doe", "maria_lopez", "k-sato", "ivan.petrov", "li.na", "p.costa", "m.dupont", "r.kumar", "s.haddad", "u7", "o.wolf"]
DOMAINS = ["example.com", "example.org", "mail.example.net", "beispiel.example", "example.co.jp", "example.com.br", "a-b.example",
           "xn--bcher-kva.example", "example.museum"]
# Tells of another number, of which there is none below that a shape alone makes a telephone number.
OTHERS = ["Call us about order {}", "My phone's serial number is {}", "Telefonisch bestellt, Bestellnummer {}",
          "Rufen Sie uns an wegen Rechnung {}", "Appelez-nous pour la commande {}", "Llámenos por el pedido {}",
          "telefone, pedido {}", "電話での注文番号{}", "电话订单号{}", "Телефон заказа нет, заказ № {}", "phone order {}", "fax invoice {}"]


def carried(value, lang=None):
    return draw.choice(CARRIERS[lang or draw.choice(list(CARRIERS))]).format(value)


def made():
    """(tags, why, text) of the templates."""
    every = list(CARRIERS)
    for n in range(50):
        lang = every[n % len(every)]
        a = f"{NAMES[n % len(NAMES)]}{n or str()}@{DOMAINS[n % len(DOMAINS)]}"
        a = full_width(a) if n % 10 == 9 else a.replace("@", "%40") if n % 10 == 4 else a
        yield "e", f"address, {lang}", carried(f"https://app.example/?m={a}" if "%40" in a else a, lang)
    for n in range(60):
        lang = every[n % len(every)]
        v = ABROAD[n % len(ABROAD)].format(draw.randint(100, 199))
        v = SCRIPTS[n % len(SCRIPTS)](v) if n % 2 else v.replace(" ", SEPARATORS[n // 2 % 4])
        yield "p", f"international number, {lang}", carried(v, lang)
    for n in range(60):
        lang, cue, form = CUES[n % len(CUES)]
        v = form.format(draw.randint(100, 199))
        yield "p", f"national number and its word, {lang}", cue.format(SCRIPTS[n // len(CUES) * 2](v))
    for n in range(60):
        lang, (country, count, bank) = every[n % len(every)], IBANS[n % len(IBANS)]
        v = groups(iban(country, bank + some(DIGIT, count)), (4,) * 9, SEPARATORS[n % len(SEPARATORS)])
        yield "i", f"account, {country}, {lang}", carried(SCRIPTS[n % len(SCRIPTS)](v), lang)
    for n in range(60):
        lang, kind = every[n % len(every)], CARDS[n % len(CARDS)]
        v = card_groups(card(*kind), SEPARATORS[n % len(SEPARATORS)])
        yield "c", f"card {kind[0]}, {lang}", carried(SCRIPTS[n % len(SCRIPTS)](v), lang)
    for n in range(40):
        lang = every[n % len(every)]
        v = SCRIPTS[n % len(SCRIPTS)](ssn(sep="-" if n % 3 else "\u2011"))
        yield "n", f"SSN, {lang}", carried(v, lang)
    for n in range(60):
        lang, name = every[n % len(every)], SECRET_NAMES[n % len(SECRET_NAMES)]
        yield "s", f"{name}, {lang}", carried(secret(name), lang)

    for n in range(70):
        lang, kind = every[n % len(every)], CARDS[n % len(CARDS)]
        v = card(*kind)
        v = v[:-1] + str((int(v[-1]) + draw.randint(1, 9)) % 10)
        v = card_groups(v, SEPARATORS[n % len(SEPARATORS)])
        yield "-", f"like card {kind[0]}, Luhn fails, {lang}", carried(SCRIPTS[n % len(SCRIPTS)](v), lang)
    for n in range(60):
        lang, (country, count, bank) = every[n % len(every)], IBANS[n % len(IBANS)]
        v = iban(country, bank + some(DIGIT, count), draw.randint(1, 96))
        v = groups(v, (4,) * 9, SEPARATORS[n % len(SEPARATORS)])
        yield "-", f"like an account, {country}, check digits wrong, {lang}", carried(SCRIPTS[n % len(SCRIPTS)](v), lang)
    for n in range(25):
        country, count, bank = IBANS[n]
        v = iban(country, bank + some(DIGIT, count + (1 if n % 2 else -1)))
        yield "-", f"like an account, {country}, check digits right, length wrong", carried(v)
    for n in range(10):
        country = ("US", "CA", "AU", "JP", "CN", "IN", "ZA", "NZ", "KR", "XX")[n]
        yield "-", f"like an account, {country} has none", carried(iban(country, some(DIGIT, 18)))
    for n in range(50):
        bad = ({"area": 0}, {"area": 666}, {"area": draw.randint(900, 999)}, {"group": 0}, {"serial": 0})[n % 5]
        lang = every[n % len(every)]
        yield "-", f"like an SSN, {', '.join(bad)} never given, {lang}", carried(SCRIPTS[n % len(SCRIPTS)](ssn(**bad)), lang)
    for n in range(45):
        name = SECRET_NAMES[n % len(SECRET_NAMES)]
        short = SHAPES[name][2] // 2 + n // len(SECRET_NAMES)
        yield "-", f"like {name}, too short", carried(secret(name, short))
    for n in range(36):
        yield "-", "a phone's word, but another number", OTHERS[n % len(OTHERS)].format(some("123456789", 10 - n // 12))
    for n in range(120):
        r = draw.randint
        v, why = ((f"{r(1, 223)}.{r(0, 255)}.{r(0, 255)}.{r(1, 254)}", "IPv4"),
                  (f"{r(1, 30)}.{r(0, 99)}.{r(1000, 9999)}.{r(100, 999)}", "version"),
                  (f"20{r(10, 29)}-{r(1, 12):02}-{r(1, 28):02}", "date"),
                  (f"{r(1, 28):02}.{r(1, 12):02}.20{r(10, 29)}", "date"),
                  (f"978-3-{r(10, 99)}-{r(100000, 999999)}-{r(0, 9)}", "ISBN"),
                  ("1Z" + some(ALNUM.upper(), 6) + str(r(10**9, 10**10 - 1)), "parcel number"),
                  (f"{r(100, 199)}-{r(10**6, 10**7 - 1)}-{r(10**6, 10**7 - 1)}", "order number"),
                  (str(r(1_700_000_000, 1_799_999_999)), "Unix time"),
                  (secret("uuid"), "UUID"), (secret("hex40"), "SHA-1"), (secret("hex64"), "SHA-256"),
                  (f"@{draw.choice(['types', 'acme', 'vue'])}/pkg@{r(0, 30)}.{r(0, 20)}.{r(0, 9)}", "npm package"),
                  (f"tool@v{r(0, 9)}.{r(0, 20)}.{r(0, 9)}", "module version"),
                  (f"@{draw.choice(['alice', 'bob-m', 'k_sato'])}:matrix.example.org", "Matrix id"),
                  (f"img/pic{r(1, 99)}@{r(2, 3)}x.png", "image asset"),
                  (f"+{r(1, 9) * 100000}", "signed number"),
                  (f"{r(10, 89)}.{r(100000, 999999)}, {r(10, 89)}.{r(100000, 999999)}", "coordinates"),
                  (f"00:{r(10, 99)}:4b:{r(10, 99)}:a{r(0, 9)}:{r(10, 99)}", "MAC address"),
                  (f"{r(1, 999):,}.{r(100, 999)},{r(10, 99)} EUR", "amount"),
                  (f"sha256-{secret('b6443')}=", "integrity"))[n % 20]
        yield "-", why, carried(v)
    yield from long_texts()


WORDS = ("the time when light of a small house was seen from the river and nobody knew who had left it so der Weg nach Hause ist weit "
         "aber schön le chat dort sur la table une fois de plus el mar y la noche son largos o vento da serra не было ни одного дома "
         "春は あけぼの 山の上 यह एक लंबी कहानी है كان يا ما كان").split()


def prose(size):
    out, length = [], 0
    while length < size:
        w = draw.choice(WORDS) + draw.choice(("", "", "", "", "", "", ",", ".", ".\n"))
        out.append(w)
        length += len(w) + 1
    return out


def long_texts():
    """Values at the start, in the middle and at the end of 1 to 48 Ki signs; and texts full of near misses."""
    values = (("e", "pia@example.com"), ("p", "+49 30 901820"), ("i", "DE89 3704 0044 0532 0130 00"), ("c", "4111 1111 1111 1111"),
              ("n", "536-22-8726"), ("s", secret("ghp")))
    for n, (tag, v) in enumerate(values * 3):
        words = prose((1000, 4000, 12000)[n // 6])
        at = (0, len(words) // 2, len(words))[n % 3]
        yield tag, f"in {(1, 4, 12)[n // 6]} Ki signs of prose, at {('the start', 'half', 'the end')[n % 3]}", " ".join(words[:at] + [v] + words[at:])
    for n in range(8):
        lines = []
        for _ in range(20 + 12 * n):
            c = card("4", 16)
            lines.append(draw.choice((
                f"192.0.2.{draw.randint(1, 254)} - - [14/Mar/2026:15:09:26 +0100] \"GET /a/{some(HEX, 12)} HTTP/1.1\" 200 {draw.randint(100, 99999)}",
                f"order {c[:-1]}{(int(c[-1]) + 1) % 10} shipped 2026-03-14",
                f"commit {secret('hex40')}",
                f"lodash@4.17.{draw.randint(1, 30)} @types/node@{draw.randint(10, 22)}.0.1",
                f"id {secret('uuid')}",
                f"ISBN 978-3-{draw.randint(10, 99)}-{draw.randint(100000, 999999)}-0")))
        yield "-", f"{len(lines)} lines of near misses", "\n".join(lines)
    yield "ec", "in 48 Ki signs of prose", " ".join(prose(24000) + ["quinn@example.com"] + prose(24000) + ["5555 5555 5555 4444"])


# ---- writing ----

SHOWN = re.compile("|".join(("gh(?=[posur]_)", "g(?=ithub_pat_)", "g(?=lpat-)", r"s(?=k-[A-Za-z0-9])", "A(?=KIA|SIA)", "A(?=Iza)", "G(?=OCSPX-)",
                             "x(?=ox[bp]-)", "[srp](?=k_(?:live|test)_)", "h(?=f_)", "n(?=pm_)", "p(?=ypi-)", r"S(?=G\.)", "d(?=op_v1_)", "e(?=yJ)",
                             "h(?=ooks.sl)", "-(?=----BEGIN)", "P(?=RIVATE KEY)", "A(?=A[A-Za-z0-9]{33})", "(?<=:/)/(?=[^/\\s\"]+:[^/\\s\"]+@)", "w(?=Jalr)")))


def written(case):
    """One line; what cannot be seen and what looks like a secret as escapes."""
    line = json.dumps(case, ensure_ascii=False)
    hidden = lambda c: "".join(f"\\u{ord(x):04x}" for x in c)
    line = SHOWN.sub(lambda m: hidden(m[0][0]) + m[0][1:] if line[m.start() - 1] != "\\" else m[0], line)
    line = "".join(hidden(c) if c != " " and unicodedata.category(c) in ("Cf", "Zs", "Zl", "Zp", "Cc") else c for c in line)
    assert json.loads(line) == case, line
    return line


def rows(name):
    for line in (HERE / name).read_text().splitlines():
        if line and not line.startswith("# "):
            yield re.split(r" \| ?", line, maxsplit=2)


def cases():
    for n, (tags, why, text) in enumerate(rows("hand_values.txt"), 1):
        yield f"hand-{n:04}", tags, why, {"text": filled(plain(text))}
    for n, (tags, why, text) in enumerate(rows("hand_bodies.txt"), 1):
        body = filled(text)
        parsed = json.loads(body)
        yield f"body-{n:04}", tags, why, {"body": body if "\\u" in body or "\\/" in body else parsed}
    for n, (tags, why, text) in enumerate(made(), 1):
        yield f"made-{n:04}", tags, why, {"text": text}


def main():
    seen = set()
    for ident, tags, why, what in cases():
        assert re.fullmatch(r"[epicns]+|[-.]", tags), (ident, tags)
        key = json.dumps(what)
        if key in seen and ident.startswith("made"):
            continue  # drawn twice
        assert key not in seen, (ident, what)
        seen.add(key)
        hard = {"hard": True} if tags == "-" else {}
        case = {"id": ident, **what, "tags": [] if tags in "-." else [TAGS[t] for t in tags], **hard, "why": why}
        sys.stdout.write(written(case) + "\n")


main()
