"""What an agent is doing now, read from its state: short texts to search by."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
    convert_to_messages,
)
from typing_extensions import TypedDict  # what AgentState is made of; the two kinds do not mix

from langmem_recall.errors import InputError
from langmem_recall.types import Cue

PART_CHARS = 250
"""Longest part of a cue: a long one ruins dense search."""
BLOCK_NAME = "recalled_memories"
"""Name of the messages that carry our own blocks; they are no human's words."""

# What decides a long text stands at its ends; the middle of a pasted file is not worth reading.
_READ_CHARS = 4000
_FIELDS = ("messages", "goal", "active_subtask", "open_loops", "todos", "task", "task_tag")


class CueState(TypedDict, total=False):
    """Fields a state may have for `build_cue`: `class MyState(AgentState, CueState)`."""

    goal: str
    """What the whole task is about."""
    active_subtask: str
    """What is being done right now; the entry in progress of `todos` when absent."""
    open_loops: str | list[str]
    """What is still to be done; the pending entries of `todos` when absent."""
    task: str
    """Tag of the task, for policies that look only at memories of the same task."""


def build_cue(state: Mapping[str, Any] | object) -> Cue:
    """The cue of a state: latest human words, goal, sub-task, open loops, latest tool error.

    Args:
        state: A mapping, dataclass or model; fields of other types than `CueState` names are passed
            over. LangChain's `todos` stand in for the sub-task and the open loops.
    """
    fields: Any = state
    if not isinstance(state, Mapping):
        fields = {name: getattr(state, name) for name in _FIELDS if hasattr(state, name)}
        if not fields:
            raise InputError(
                f"A state is a mapping or an object with messages, got {type(state).__name__}. "
                'Pass {"messages": [...]}, or a cue of your own.'
            )
    messages = _messages_of(fields.get("messages"))
    turn = latest_human(messages)
    latest = shorten(words_of(messages[turn])) if turn is not None else ""
    sought = latest
    if turn is not None and (not latest or is_vague(latest)):
        sought = _meant_before(messages[:turn]) or latest
    todos = fields.get("todos")
    recent = messages[turn or 0 :]
    errors = [each for each in recent if isinstance(each, ToolMessage) and each.status == "error"]
    distinct: dict[str, str] = {}
    for part in (
        sought,
        _joined(_texts(fields.get("goal"))),
        _joined(_texts(fields.get("active_subtask")) or _todos(todos, "in_progress")),
        _joined(_texts(fields.get("open_loops")) or _todos(todos, "pending")),
        _joined(identifiers(words_of(errors[-1])) if errors else (), " "),
    ):
        distinct.setdefault(part.casefold(), part)
    return Cue(latest, tuple(filter(None, distinct.values())), task_of(fields))


def task_of(state: Any) -> str | None:
    """The tag of the task a state is about, if it has one."""
    fields = state if isinstance(state, Mapping) else getattr(state, "__dict__", {})
    tags = (fields.get("task"), fields.get("task_tag"))
    return next((tag.strip() for tag in tags if isinstance(tag, str) and tag.strip()), None)


def latest_human(messages: Sequence[BaseMessage]) -> int | None:
    """Index of the message that begins the turn; blocks and summaries begin none."""
    places = reversed(range(len(messages)))
    return next((place for place in places if _is_human(messages[place])), None)


def human_words(messages: Sequence[BaseMessage]) -> list[str]:
    """What humans said, in order."""
    return [words_of(message) for message in messages if _is_human(message)]


def words_of(message: BaseMessage) -> str:
    """The text of a message; images, calls and other blocks have no words."""
    return "\n".join(filter(None, texts_of(message))).strip()


def texts_of(message: BaseMessage) -> list[str]:
    """The blocks of a message that are text, in order and as they stand."""
    texts: list[Any] = []
    for block in [message.content] if isinstance(message.content, str) else message.content:
        if isinstance(block, str):
            texts.append(block)
        elif isinstance(block, Mapping) and block.get("type") == "text":
            texts.append(block.get("text"))
    return [text if isinstance(text, str) else "" for text in texts]


def _messages_of(messages: Any) -> list[BaseMessage]:
    if messages is None:
        return []
    is_single = isinstance(messages, str | Mapping | BaseMessage)
    try:
        return convert_to_messages([messages] if is_single else messages)
    # The converter fails in many ways; whatever it meets, these are no messages.
    except Exception as fault:
        raise InputError(
            f"The state's messages cannot be read, got {messages!r:.200}. "
            "Pass messages, (role, content) pairs or dicts with role and content."
        ) from fault


def _is_human(message: BaseMessage) -> bool:
    is_summary = message.additional_kwargs.get("lc_source") == "summarization"
    return isinstance(message, HumanMessage) and message.name != BLOCK_NAME and not is_summary


def _meant_before(messages: Sequence[BaseMessage]) -> str:
    """What a vague follow-up goes back to: the latest words with content, else the last answer."""
    humans = (words_of(message) for message in reversed(messages) if _is_human(message))
    answers = (words_of(answer) for answer in reversed(messages) if isinstance(answer, AIMessage))
    meant = next((words for words in humans if not says_nothing(words)), "")
    return shorten(meant or next(filter(None, answers), ""))


def _texts(field: Any) -> list[str]:
    """A text, or the texts of a list; anything else says nothing."""
    items = field if isinstance(field, list | tuple) else [field]
    return [_flat(item) for item in items if isinstance(item, str) and item.strip()]


def _todos(field: Any, status: str) -> list[str]:
    entries = field if isinstance(field, list | tuple) else ()
    todos = [entry for entry in entries if isinstance(entry, Mapping)]
    return _texts([todo.get("content") for todo in todos if todo.get("status") == status])


def _joined(texts: Iterable[str], between: str = "; ") -> str:
    """As many of the texts as one part holds, the first of them shortened if it must be."""
    joined = ""
    for text in texts:
        longer = f"{joined}{between}{text}" if joined else shorten(text)
        joined = longer if len(longer) <= PART_CHARS else joined
    return joined


# --- Shortening: the question is kept, what was pasted goes first ---

_FENCED = re.compile(
    r"^[ \t]*(```(?=[^`\n]*$)|~~~).*?(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL
)
_PASTED_LINE = re.compile(
    r"^(?:[ \t]*(?:>|\$ |at \S+\(|File \"|Traceback |\[?\d{4}-\d\d-\d\d[T ]\d|\[?\d\d:\d\d:\d\d|"
    r"\[?(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL)\b)|\t| {4}).*$|^.*[;{}]$",
    re.MULTILINE,
)
# A line that goes on in small letters was wrapped.
_SENTENCE_END = re.compile(r"\n(?![a-z])|(?<=[.!?…])\s+|(?<=[\u3002\uff01\uff1f\u061f])")
_QUESTION_MARKS = ("?", "\uff1f", "\u061f")
_SENTENCE_CHARS = 160


def shorten(text: str) -> str:
    """A text no longer than a part: its questions, its ends, and names from what was pasted."""
    if len(whole := _flat(text)) <= PART_CHARS:
        return whole
    prose = _PASTED_LINE.sub("\n", _FENCED.sub("\n", text))
    if prose == text or not prose.strip():
        return _telling(text)
    said = _telling(prose)
    return _joined([said, *(name for name in identifiers(text) if name not in said)], " ")


def _telling(text: str) -> str:
    """The sentences that tell most, in their order: the last question, the first, the last."""
    parts = [_flat(part) for part in _SENTENCE_END.split(_ends(text)) if part.strip()]
    # Both ends may be blank where pasted blocks were taken out.
    sentences = parts or [_flat(text)]
    last = len(sentences) - 1
    longest = _SENTENCE_CHARS if last else PART_CHARS
    asking = [n for n in range(last, -1, -1) if sentences[n].endswith(_QUESTION_MARKS)]
    chosen: dict[int, str] = {}
    room = PART_CHARS
    for place in dict.fromkeys([*asking[:1], 0, last, *asking, *range(last)]):
        sentence = sentences[place]
        if len(sentence) > longest:
            # The two ends of a long sentence, cut between words where there are any.
            half = (longest - 3) // 2
            head, tail = sentence[:half], sentence[-half:]
            sentence = f"{head.rpartition(' ')[0] or head} … {tail.partition(' ')[2] or tail}"
        if len(sentence) <= room:
            chosen[place] = sentence
            room -= len(sentence) + 1
    return " ".join(chosen[place] for place in sorted(chosen))


def _flat(text: str) -> str:
    return " ".join(text.split())


def _ends(text: str) -> str:
    is_long = len(text) > 2 * _READ_CHARS
    return f"{text[:_READ_CHARS]}\n{text[-_READ_CHARS:]}" if is_long else text


# --- Identifiers: what a search finds literally ---

_PER_SORT = 2
_FILE_KINDS = (
    "py|ipynb|js|mjs|ts|tsx|jsx|java|kt|go|rs|rb|php|c|h|cc|cpp|hpp|cs|swift|sh|sql|json|ya?ml|"
    "toml|ini|cfg|conf|md|txt|log|csv|html|css|xml|lock|env|db"
)
_SORTS = tuple(
    re.compile(pattern)
    for pattern in (
        r"\b(?:[A-Za-z_]\w{0,40}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception|Warning|Timeout|Failure)\b",
        r"\b(?:[a-z_]\w{0,40}\.){1,6}[A-Z]\w{0,20}[a-z]\w{0,40}\b",
        r"\b[A-Z]{1,8}-?\d{2,7}\b",
        r"\b[A-Z][A-Z0-9]{0,30}(?:_[A-Z0-9]{1,30}){1,6}\b|\bE(?!RRORS?\b|XCEPTION\b)[A-Z]{4,20}\b",
        r"(?i:\b(?:http|status|status code|errno|sqlstate|exit code|exit status|error code|code)"
        r"[ :=]{1,3}(?=[a-z]{0,4}\d)[0-9a-z]{2,6}\b)|\b0x[0-9A-Fa-f]{8}\b",
        r"(?<![\w&#])#\d{1,7}\b",
        r"(?<=['\"`])[A-Za-z_][\w.@:-]{2,60}(?=['\"`])",
        r"\b[A-Za-z][\w.-]{0,40} ?(?:[=<>~!]=|<|>) ?v?\d[\w.]{0,20}|\bv\d+(?:\.\d+){1,4}\b|"
        r"(?<![\w.])\d+(?:\.\d+){2,3}(?:[-+]?[a-z]\w{0,12})?\b|"
        r"(?i:\b(?:version|python|node|release) \d+(?:\.\d+){1,3}\b)",
        r"(?<![\w./\\:-])(?:[A-Za-z]:|~|\.{1,2})?(?:[/\\][\w.@+-]{1,60}){2,12}|"
        rf"(?<![\w./\\-])(?:[\w.@+-]{{1,60}}[/\\]){{0,10}}[\w@+-]{{1,60}}\.(?:{_FILE_KINDS})\b",
    )
)
"""Exceptions, types, codes and tickets, constants, statuses, issues, names, versions, paths."""


def identifiers(text: str) -> list[str]:
    """Error codes, exceptions, versions, paths and ticket numbers, the most telling sorts first."""
    read = _ends(text)
    found: list[str] = []
    for sort in _SORTS:
        named = [*dict.fromkeys(match.group() for match in sort.finditer(read))]
        # A trace begins or ends with what went wrong; between the two are its frames.
        telling = dict.fromkeys(named[-_PER_SORT:] + named[:_PER_SORT])
        found += [name for name in telling if not any(name in other for other in found)]
    return found


# --- Vague follow-ups: words that mean something only after other words ---

_VAGUE, _POLITE = (
    frozenset(files("langmem_recall.text").joinpath(name).read_text("utf-8").casefold().split())
    for name in ("vague_words.txt", "polite_words.txt")
)
# Written without spaces, so they are told by being nothing but such words.
_VAGUE_UNSPACED = re.compile(
    "(?:はい|うん|ええ|いいえ|いいよ|お願い|します|して|続けて|ください|それで|なぜ|どうして|もっと|"
    "了解|わかった|そう|です|ね|好|的|是|对|對|行|可以|继续|繼續|为什么|為什麼|然后|然後|呢|吧|不|"
    "没问题|请|請|네|예|응|아니요?|계속|해줘|해주세요|왜요?|그리고|좋아요?|그래요?|알겠어요?)+"
)
# Marks of Arabic, of Indic scripts and of Thai stand inside their words.
_WORD = re.compile(r"[^\W_][\w'\u2019\u0610-\u061a\u064b-\u065f\u0900-\u0dff\u0e00-\u0eff-]*")
_MOST_VAGUE_CHARS = 80


def is_vague(text: str) -> bool:
    """Whether a message leans on those before it ("yes, do it"); thanks alone ask for nothing."""
    words = _words(text)
    return says_nothing(text) and not (words and _POLITE.issuperset(words))


def says_nothing(text: str) -> bool:
    """Whether a message has no content words of its own."""
    return len(text) <= _MOST_VAGUE_CHARS and all(
        word in _VAGUE
        or word in _POLITE
        # The number of a choice.
        or (word.isdecimal() and len(word) <= 2)
        or _VAGUE_UNSPACED.fullmatch(word)
        for word in _words(text)
    )


def _words(text: str) -> list[str]:
    folded = unicodedata.normalize("NFKC", text[: _MOST_VAGUE_CHARS + 1]).casefold()
    return [word.replace("\u2019", "'").rstrip("'-") for word in _WORD.findall(folded)]
