"""Awkward text for the tokenizers' tests: the same for the same seed and length."""
import random

WORDS = {
    "latin": "the quick brown fox don't it's we'll I'M naïve café Straße ŁÓDŹ Ǆungla ﬁne İstanbul ſhort",
    "cyrillic": "быстрая коричневая лиса прыгает через ленивую собаку Ёлка",
    "greek": "η γρήγορη καφέ αλεπού ΣΊΣΥΦΟΣ ᾳ",
    "arabic": "الثعلب البني السريع يقفز فوق الكلب الكسول ١٢٣ مُحَمَّد",
    "hebrew": "השועל החום המהיר קופץ מעל הכלב העצלן שָׁלוֹם",
    "devanagari": "तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है १२३",
    "thai": "สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจ ๑๒๓",
    "chinese": "敏捷的棕色狐狸跳过了懒狗 中文，测试。 𠀀𠮷",
    "japanese": "素早い茶色の狐は のろまな犬を飛び越える カタカナ ﾊﾝｶｸ ー",
    "korean": "빠른 갈색 여우가 게으른 개를 뛰어넘는다 한국어 ㅋㅋㅋ",
    "tamil": "விரைவான பழுப்பு நரி சோம்பேறி நாய்",
    "georgian": "სწრაფი ყავისფერი მელა Ⴀ ა",
}
PIECES = {
    "digits": ["0", "7", "42", "123", "1234", "3.14159", "1,000,000", "0x1F", "²³", "½", "Ⅷ", "٣٤", "𝟘𝟙", "１２３"],
    "punctuation": [".", ",", "!?", "...", "--", "—", "“q”", "(x)", "[y]", "{z}", "'s", "'LL", "’s", "«»", "、。", "¿", "$", "€", "+=", "©", "_a_", "#1"],
    "spaces": [" ", "  ", "   ", " " * 17, "\t", "\t\t", "\n", "\n\n", "\r\n", " \n", "\n ", "\r", "\u00a0", "\u2003", "\u3000", "\u2028", "\u0085", "\v",
               "\u200b", "\u180e", "\ufeff", " \t \n\n  "],
    "emoji": ["😀", "👍🏽", "👨‍👩‍👧‍👦", "🇩🇪", "❤️", "🏳️‍🌈", "1️⃣", "🩷", "🫨", "🫩"],
    "combining": ["e\u0301", "o\u0308\u0323", "a\u0323\u0307", "\u0301", "\u1100\u1161\u11a8", "\u0915\u094d\u0937", "Å", "ﷺ", "ﬃ", "㌔", "①", "x\u20e3"],
    "code": ["def f(x):\n    return x**2\n", "if (a[i] != b->c) {\n\tfoo(&x, \"s\\n\");\n}\n", "std::vector<int>", "x+=1;", "// comment\n", "<div class='a'>",
             "http://example.org/?q=a&b=%20", "camelCaseName", "SCREAMING_CASE", "__init__", "$HOME/.bashrc", "#!/bin/sh\n"],
    "control": ["\x00", "\x01", "\x1b[0m", "\x7f", "\u0600", "\u200d", "\u2060", "\ufffd", "\uffff", "\U000e0001", "\ue000", "\U0010fffd"],
}


def words(rng):
    return rng.choice(WORDS[rng.choice(list(WORDS))].split())


def random_character(rng):
    while True:
        c = rng.choice([rng.randrange(0x80), rng.randrange(0x800), rng.randrange(0x10000), rng.randrange(0x30000), rng.randrange(0x110000)])
        if not 0xD800 <= c <= 0xDFFF:
            return chr(c)


def text(seed, length, special=()):
    """About `length` characters: words of twelve scripts, code, spaces, emoji, digits, any characters at all, and `special` tokens."""
    rng = random.Random(seed)
    parts, total = [], 0
    while total < length:
        kind = rng.random()
        if kind < 0.5:
            part = words(rng) + rng.choice(["", " ", " ", " ", "\n"])
        elif kind < 0.9:
            part = rng.choice(PIECES[rng.choice(list(PIECES))])
        elif kind < 0.95 or not special:
            part = "".join(random_character(rng) for _ in range(rng.randrange(1, 6)))
        else:
            part = rng.choice(["", " ", "a"]) + rng.choice(special) + rng.choice(["", " ", "\n", "b"])
        if rng.random() < 0.02:
            part = part * rng.randrange(2, 30)
        parts.append(part)
        total += len(part)
    return "".join(parts)
