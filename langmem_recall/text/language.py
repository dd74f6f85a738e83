"""Which language a cue is in, as far as an embedder's null distribution depends on it."""

from __future__ import annotations

import re

_SCRIPTS = (
    ("ko", re.compile("[\u1100-\u11ff\uac00-\ud7af]")),
    ("ja", re.compile("[\u3041-\u3096\u30a1-\u30fa]")),
    ("zh", re.compile("[\u4e00-\u9fff\u3400-\u4dbf]")),
    ("ru", re.compile("[\u0400-\u04ff]")),
)
"""Kana before Han: Japanese uses both, Chinese only the latter."""

_WORD = re.compile(r"[^\W\d_]+")
_FUNCTION_WORDS = {
    "en": "the a an is are was were do does did what which who where when how why my your his "
    "her their of to in on for with and or that this it i you he she we they have has should "
    "can not",
    "de": "der die das ein eine einen ist sind war waren was welche welcher welches wer wo wann "
    "wie warum mein meine dein seine ihr und oder mit für von zu im am ich du er sie wir nicht "
    "soll kann hat habe auf bei",
    "fr": "le la les un une des est sont était que quel quelle qui où quand comment pourquoi mon "
    "ma mes ton ta son sa et ou avec pour de du au aux je tu il elle nous vous ne pas dans sur "
    "ai dois peut ce cette",
    "es": "el la los las un una es son era qué cuál quién dónde cuándo cómo por mi mis tu su y o "
    "con para de del al yo él ella nosotros no en que se debo puede tengo tiene este esta lo",
}
_LANGUAGES = {
    word: {name for name, words in _FUNCTION_WORDS.items() if word in words.split()}
    for words in _FUNCTION_WORDS.values()
    for word in words.split()
}


def language_of(text: str) -> str:
    """The language with a panel of its own that a text is most likely in; English in doubt."""
    for name, script in _SCRIPTS:
        if script.search(text):
            return name
    votes = dict.fromkeys(_FUNCTION_WORDS, 0)
    for word in _WORD.findall(text.casefold()):
        for name in _LANGUAGES.get(word, ()):
            votes[name] += 1
    # Of equals the first, which is English.
    return max(votes, key=lambda name: votes[name])
