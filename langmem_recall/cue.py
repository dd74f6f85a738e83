"""What an agent is doing now, read from its state: short texts to search by."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
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
from langmem_recall.text.tokens import STOP_WORDS, read_once, word_lists
from langmem_recall.types import Cue

PART_CHARS = 250  # longest part of a cue: a long one ruins dense search
BLOCK_NAME = "recalled_memories"
"""Name of the messages that carry our own blocks; they are no human's words."""

# What decides a long text stands at its ends; the middle of a pasted file is not worth reading.
_READ_CHARS = 4000
# What was pasted is found and left out before that, in as much as a moment is enough for.
_MOST_CHARS = 25_000
_FIELDS = ("messages", "goal", "active_subtask", "open_loops", "todos", "task", "task_tag")


# Read with the module, not at first use: that would be a file opened on the event loop.
_LISTS = word_lists("cue")


def _pattern(name: str, flags: int = 0) -> re.Pattern[str]:
    return re.compile(_LISTS["patterns"][name].replace("\n", ""), flags)


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
    latest = "" if turn is None else _ends(words_of(messages[turn]), _MOST_CHARS)
    is_chat = is_small_talk(latest)
    said = [] if turn is None or is_chat else _said(latest, messages[:turn])
    todos = fields.get("todos")
    error = _latest_error(messages[turn or 0 :])
    distinct: dict[str, tuple[str, str]] = {}
    for part, reason in (
        *said,
        (_joined(_texts(fields.get("goal"))), "goal"),
        (_joined(_texts(fields.get("active_subtask")) or _todos(todos, "in_progress")), "sub-task"),
        (_joined(_texts(fields.get("open_loops")) or _todos(todos, "pending")), "open loop"),
        (_joined(identifiers(error), " "), "tool error"),
    ):
        if part:
            distinct.setdefault(part.casefold(), (part, reason))
    parts = tuple(part for part, _ in distinct.values())
    reasons = tuple(reason for _, reason in distinct.values())
    return Cue("" if is_chat else shorten(latest), parts, task_of(fields), reasons=reasons)


def as_cue(cue: Any) -> Cue:
    """A text as a cue; a courtesy alone keeps its words and has nothing to search for."""
    if isinstance(cue, Cue):
        return cue
    if not isinstance(cue, str):
        raise InputError(f"A cue must be a text or a Cue, got {cue!r:.80}.")
    return Cue(cue, ("",), reasons=("small talk",)) if _is_chat(cue) else Cue(cue)


@read_once
def _is_chat(query: str) -> bool:
    # As a query "Hello Kitty" is meant.
    return is_small_talk(query, to_names=False)


def task_of(state: Any) -> str | None:
    """The tag of the task a state is about, if it has one."""
    fields = state if isinstance(state, Mapping) else getattr(state, "__dict__", {})
    tags = (fields.get("task"), fields.get("task_tag"))
    return next((tag.strip() for tag in tags if isinstance(tag, str) and tag.strip()), None)


def latest_human(messages: Sequence[BaseMessage]) -> int | None:
    """Index of the message that begins the turn; blocks and summaries begin none."""
    places = reversed(range(len(messages)))
    return next((place for place in places if is_human(messages[place])), None)


def human_words(messages: Sequence[BaseMessage]) -> list[str]:
    """What humans said, in order."""
    return [words_of(message) for message in messages if is_human(message)]


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


def is_human(message: BaseMessage) -> bool:
    """Whether somebody wrote it: no block of ours and no summary."""
    is_summary = message.additional_kwargs.get("lc_source") == "summarization"
    return isinstance(message, HumanMessage) and message.name != BLOCK_NAME and not is_summary


def _said(latest: str, before: Sequence[BaseMessage]) -> list[tuple[str, str]]:
    """The parts of the latest words, each with its reason, and what a follow-up refers to."""
    asked_before = _meant_before(before)
    own = " ".join(sentences_of(latest))
    if is_vague(own):
        answers = (words_of(answer) for answer in reversed(before) if isinstance(answer, AIMessage))
        meant = asked_before or shorten(next(filter(None, answers), ""))
        if not meant:
            return [(shorten(latest), "latest words")]
        # "Where does that run?" asks something of what was said, "why?" does not say what.
        is_asking = own.endswith(_QUESTION_MARKS) and len(own.split()) >= _ASKING_WORDS
        return [(shorten(f"{meant} {own}") if is_asking else meant, _FOLLOW_UP)]
    parts = parts_of(latest)
    if asked_before and leans(latest):
        return [*parts[:1], (shorten(f"{asked_before} {own}"), _FOLLOW_UP), *parts[1:]]
    return parts


def _meant_before(messages: Sequence[BaseMessage]) -> str:
    """What a follow-up goes back to: the latest human words that mean something by themselves."""
    meant: list[str] = []
    for message in reversed(messages):
        words = _ends(words_of(message), _MOST_CHARS) if is_human(message) else ""
        if words and not is_small_talk(words) and not says_nothing(words):
            meant.insert(0, parts_of(words)[0][0])
            # A follow-up to a follow-up is about what both refer to.
            if len(meant) == _MOST_REFERRED or not leans(words):
                break
    return shorten(" ".join(meant))


def _latest_error(messages: Sequence[BaseMessage]) -> str:
    """The text of the latest tool result that failed, however it says so."""
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            text = words_of(message)
            # What is stored about a failure is none.
            is_told = message.name not in _MEMORY_TOOLS and _FAILURE.search(_ends(text))
            if message.status == "error" or is_told:
                return text
    return ""


def _texts(field: Any) -> list[str]:
    """A text, or the texts of a list; anything else says nothing."""
    items = field if isinstance(field, list | tuple) else [field]
    return [_flat(item) for item in items if isinstance(item, str) and item.strip()]


def _todos(field: Any, status: str) -> list[str]:
    entries = field if isinstance(field, list | tuple) else ()
    todos = [entry for entry in entries if isinstance(entry, Mapping)]
    texts = _texts([todo.get("content") for todo in todos if todo.get("status") == status])
    # A single word brings all that has it; a ticket's number is meant.
    return [text for text in texts if not text.isalpha() or not text.isascii()]


def _joined(texts: Iterable[str], between: str = "; ") -> str:
    """As many of the texts as one part holds, the first of them shortened if it must be."""
    joined = ""
    for text in texts:
        longer = f"{joined}{between}{text}" if joined else shorten(text)
        joined = longer if len(longer) <= PART_CHARS else joined
    return joined


_FOLLOW_UP = "follow-up to the previous words"
_MOST_REFERRED = 2
_ASKING_WORDS = 4
_MEMORY_TOOLS = ("recall", "remember", "correct", "forget")
_FAILURE = _pattern("failure", re.MULTILINE | re.IGNORECASE)


# --- Parts: each sentence that says something, the questions first ---

MOST_PARTS = 4  # most parts of the latest words: each costs a search
_SHARED_CHARS = 120  # short sentences next to each other share a part up to this length


def is_small_talk(text: str, to_names: bool = True) -> bool:
    """Whether a message is nothing but greeting, thanks, goodbye or interjection."""
    return bool(text.strip()) and all(is_courtesy(each, to_names) for each in _sentences(text))


def sentences_of(text: str) -> list[str]:
    """What a message says in its own words: no pasted text, no courtesies."""
    sentences = _sentences(_prose(text))
    if is_courtesy(" ".join(sentences[-2:])):
        # "Cheers", and below it a name.
        del sentences[-2:]
    said = (without_courtesy(each) for each in sentences if not is_courtesy(each))
    return list(dict.fromkeys(said))


def parts_of(text: str) -> list[tuple[str, str]]:
    """The texts a message is searched by, at least one, each with the reason for it."""
    sentences = [each for each in sentences_of(text) if not says_nothing(each)]
    if not sentences:
        return [(shorten(text), "latest words")]
    questions, statements, is_open = list[tuple[str, str]](), [""], False
    for sentence in sentences:
        if sentence.endswith(_QUESTION_MARKS):
            questions += ((shorten(each), "question") for each in _questions_of(sentence))
            is_open = False
        elif is_open and len(statements[-1]) + len(sentence) < _SHARED_CHARS:
            statements[-1] += f" {sentence}"
        else:
            statements.append(shorten(sentence))
            is_open = True
    # What decides a long message stands at its ends.
    _, *told = statements
    told = [*told[:1], *told[:0:-1][:1], *told[1:-1]]
    said = " ".join(sentences)
    pasted = "" if _prose(text) == text else identifiers(text)
    named = _joined([name for name in pasted if name not in said], " ")
    room = MOST_PARTS - bool(named)
    asked = questions if len(questions) <= room else [*questions[: room - 1], questions[-1]]
    parts = [*asked, *((each, "latest words") for each in told)][:room]
    return [*parts, (named, "pasted text")] if named else parts


def _questions_of(sentence: str) -> list[str]:
    """A question, or the two that "and" joins: each of their memories is near to only one."""
    for joint in _SECOND_QUESTION.finditer(sentence):
        first, second = sentence[: joint.start()], sentence[joint.end() :]
        # "Who is it and when do they come?" asks both of one thing.
        is_whole = (_REFERRING - _DETERMINERS).isdisjoint(read_words(second))
        terms = len(_terms(first)), len(_terms(second))
        if is_whole and min(terms) > 0 and sum(terms) > 2:
            return [f"{first}?", *_questions_of(second)]
    return [sentence]


# --- Shortening: the question is kept, what was pasted goes first ---

_FENCED = _pattern("fenced", re.MULTILINE | re.DOTALL)
_PASTED_LINE = _pattern("pasted_line", re.MULTILINE)
_SENTENCE_END = _pattern("sentence_end")
_QUESTION_MARKS = ("?", "\uff1f", "\u061f")
_SENTENCE_CHARS = 160


def shorten(text: str) -> str:
    """A text no longer than a part: its questions, its ends, and names from what was pasted."""
    if len(whole := _flat(text)) <= PART_CHARS:
        return whole
    prose = _prose(text)
    if prose == text or not prose.strip():
        return _telling(text)
    said = _telling(prose)
    return _joined([said, *(name for name in identifiers(text) if name not in said)], " ")


def _telling(text: str) -> str:
    """The sentences that tell most, in their order: the last question, the first, the last."""
    # Both ends may be blank where pasted blocks were taken out.
    sentences = _sentences(text) or [_flat(text)]
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


def _prose(text: str) -> str:
    """A text without what was pasted into it."""
    return _PASTED_LINE.sub("\n", _FENCED.sub("\n", text))


def _sentences(text: str) -> list[str]:
    return [_flat(part) for part in _SENTENCE_END.split(_ends(text)) if part.strip()]


def _flat(text: str) -> str:
    return " ".join(text.split())


def _ends(text: str, chars: int = _READ_CHARS) -> str:
    return f"{text[:chars]}\n{text[-chars:]}" if len(text) > 2 * chars else text


# --- Identifiers: what a search finds literally ---

_PER_SORT = 2
_SORTS = [re.compile(sort.replace("\n", "")) for sort in _LISTS["patterns"]["identifiers"]]


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


# --- Courtesies: words that ask for nothing ---

_LONGEST_COURTESY = 160  # a sentence longer than this says something


def _words(name: str) -> frozenset[str]:
    return frozenset(_LISTS[name].casefold().split())


def _any_line(text: str) -> str:
    return "|".join(text.strip().splitlines())


_COURTESY = re.compile(rf"(?<!\S)(?:{_any_line(_LISTS['courtesies'].casefold())})(?!\S)")
_FILLER = _words("fillers")
_OPENERS = _any_line(_LISTS["openers"]).replace("@", _LISTS["tell_me"])
_OPENING = re.compile(rf"\A(?:[¿¡]?(?:{_OPENERS})(?!\S)\s*){{1,5}}", re.IGNORECASE)
_NAME = re.compile(r"\b[^\W\d_a-z][\w'-]*")
_MOST_NAMES = 3
_CLOSER = re.compile(_LISTS["closers"], re.IGNORECASE)
# Marks of Arabic, of Indic scripts and of Thai stand inside their words.
_WORD = re.compile(r"[^\W_][\w'\u2019\u0610-\u061a\u064b-\u065f\u0900-\u0dff\u0e00-\u0eff-]*")


def read_words(text: str) -> list[str]:
    """The words of a text, folded, one spelling of the apostrophe."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return [word.replace("\u2019", "'").rstrip("'-") for word in _WORD.findall(folded)]


def is_courtesy(sentence: str, to_names: bool = True) -> bool:
    """Whether a sentence is nothing but greeting, thanks, apology or interjection.

    `to_names`: "Thanks, Tom" and "Kind regards, Anna Moss" are such.
    """
    if len(sentence) > _LONGEST_COURTESY:
        return False
    words = " ".join(read_words(sentence))
    rest = _COURTESY.sub(" ", words)
    if rest == words:
        return False
    others = [word for word in rest.split() if word not in _FILLER]
    if not to_names or not others:
        return not others
    names = set(map(str.casefold, _NAME.findall("" if sentence.isupper() else sentence)))
    is_last = words.split()[-1] == others[-1]
    return is_last and len(others) <= _MOST_NAMES and names.issuperset(others)


def without_courtesy(sentence: str) -> str:
    """A sentence without its polite opening and closing; as it stands if nothing else is left."""
    rest = _CLOSER.sub("", _OPENING.sub("", sentence.replace("\u2019", "'"), count=1)).strip()
    return rest if len(read_words(rest)) > 1 else sentence


# --- Vague follow-ups: words that mean something only after other words ---

_VAGUE, _REFERRING, _DETERMINERS, _FIRST_PERSON = map(
    _words, ("vague", "referring", "determiners", "first_person")
)
_FUNCTION = STOP_WORDS | _words("function")
# Written without spaces, so they are told by being nothing but such words.
_VAGUE_UNSPACED = re.compile(_LISTS["vague_unspaced"])
_SECOND_QUESTION = re.compile(_LISTS["second_question"].replace("\n", ""), re.IGNORECASE)
_LEANING = re.compile(rf"[\W_]*(?:{_LISTS['leaning'].replace(chr(10), '')})\b", re.IGNORECASE)
_ABOUT_ALL = re.compile(_LISTS["about_all"], re.IGNORECASE | re.VERBOSE)
_MOST_VAGUE_CHARS = 80
_LONGEST_LEANING = 160
_MOST_LEANING = 3  # content words of a message that a pronoun still ties to the one before it


def is_vague(text: str) -> bool:
    """Whether a message leans on those before it ("yes, do it"); thanks alone ask for nothing."""
    return says_nothing(text) and not is_small_talk(text)


def says_nothing(text: str) -> bool:
    """Whether a message has no words that mean something by themselves."""

    def is_vague(word: str) -> bool:
        is_choice = word.isdecimal() and len(word) <= 2
        return word in _VAGUE or is_choice or _VAGUE_UNSPACED.fullmatch(word) is not None

    return len(text) <= _MOST_VAGUE_CHARS and all(map(is_vague, read_words(text)))


def leans(text: str) -> bool:
    """Whether a message means less without those before it ("And her job?")."""
    sentences = sentences_of(text)
    telling = [each for each in sentences if not says_nothing(each)]
    said = " ".join(telling)
    if len(said) > _LONGEST_LEANING:
        return False
    words, terms = read_words(said), _terms(said)
    if _LEANING.match(said):
        return True
    # "No, no. My sort of thing" begins with an answer to what was said.
    if telling[:1] != sentences[:1] or not _REFERRING.isdisjoint(words):
        return len(terms) <= _MOST_LEANING
    # "Since when?" leans; "Am I allergic?" is as short, and asks something new.
    return len(terms) <= 1 and _FIRST_PERSON.isdisjoint(words)


def asks_for_all(words: str) -> bool:
    """Whether words ask about the user or the work as a whole, as in "where were we?"."""
    return _ABOUT_ALL.search(words[:1_000]) is not None


def _terms(text: str) -> list[str]:
    """The words that neither hold a sentence together nor refer to something else."""
    return [word for word in read_words(text) if word not in _FUNCTION and word not in _REFERRING]
