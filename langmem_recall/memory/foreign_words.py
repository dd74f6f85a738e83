"""What marks words from outside in a human message: patterns over one folded sentence or line.

They read sentences in small letters, with plain apostrophes and with quotations as one word each.
None repeats a repetition, so that each reads a line in one pass.
"""

from __future__ import annotations

import re

LIGHT = (
    r"(?:(?:oh|so|well|and|also|but|please|kindly|ok|okay|hey|hi|hello|just|now|then|btw|lol|haha"
    r"|sorry|actually|no|yes|wait|bitte|und|aber|ach|et|mais|y|pero|e|ma|mas|por favor|per favore"
    r"|s'il te plaît|s'il vous plaît)[,!.\s]+){0,4}"
)
"""What may stand before the words that count."""
_NOUN = (
    r"(?:e-?mails?|mails?|messages?|msg|texts?|sms|articles?|(?:web ?)?pages?|(?:web ?)?sites?"
    r"|letters?|documents?|docs?|pdf|files?|(?:blog ?)?posts?|blog|tweets?|threads?|logs?|notes?"
    r"|newsletters?|transcripts?|chats?|conversation|contracts?|invoices?|reports?|papers?"
    r"|chapters?|paragraphs?|passages?|excerpts?|snippets?|reviews?|comments?|attachments?"
    r"|screenshots?|readme|tickets?|issues?|memos?|minutes|offers?|statements?|stor(?:y|ies)|poems?"
    r"|lyrics|brochures?|flyers?|leaflets?|manuals?|press release|polic(?:y|ies)|terms|agreements?"
    r"|contents?|drafts?|output|repl(?:y|ies)|responses?|announcements?|notices?|descriptions?"
    r"|sentences?|inbox|nachrichten?|briefe?|artikel|seiten?|dokumente?|beitr[aä]ge?|protokolle?"
    r"|notizen|anhang|courriels?|textes?|pièce jointe|lettres?|correos?|mensajes?|textos?"
    r"|artículos?|cartas?|messaggio?|testo|articolo|lettera|pagina|mensage(?:m|ns)|artigos?)"
)
_THIS = (
    r"(?:this|these|(?:the )?following|below|above|attached|dies\w{0,2}|folgend\w{0,2}|unten\w{0,4}"
    r"|oben\w{0,4}|angehängt\w{0,2}|ce(?:t|tte|s|ci)?|ci-dess(?:ous|us)|suivante?s?|est[eao]s?"
    r"|siguientes?|abajo|adjunt[oa]s?|quest[oaei]|seguent[ei]|allegat[oaei]|ess[ea]s?|isto|isso"
    r"|seguintes?|abaixo|anexo)"
)
_OBJECT = re.compile(
    rf"\b{_THIS}\b(?! (?:week|weekend|month|year|morning|afternoon|evening|summer|winter|time)\b)"
    rf"|\b(?:l')?{_NOUN}\b"
)
# "A poem" is still to be written; "the poem" is there.
_POINTS_AT = re.compile(rf"\b(?:the|that|{_THIS})\b")
_INDEFINITE = re.compile(rf"\b(?:an?|some|eine?n?|une?|un[ao]?|uma?) (?:\w+ )?{_NOUN}\b")
_OF_THE_USER = re.compile(
    r"\b(?:my|our|about me|mein\w{0,2}|unser\w{0,2}|mon|ma|mes|notre|nos|mis?|nuestr[oa]s?"
    r"|mi[oa]|miei|mie|meus?|minhas?)\b"
)

# --- Requests about a text, and words that show one ---

_ASKED = (
    r"(?:summari[sz]e|sum up|translate|proof-?read|rewrite|re-?phrase|paraphrase|repl(?:y|ies)"
    r"|respond|answer|explain|analy[sz]e|review|check|read|edit|shorten|correct|fix|polish|improve"
    r"|simplify|extract|parse|classify|interpret|comment|evaluate|rate|format|convert|digest"
    r"|condense|transcribe|look at|look over|go through|go over|tell me|help me|summary|tl;?dr"
    r"|thoughts|gist|key points|main points|zusammen\w{0,10}|fass\w{0,2}|übersetz\w{0,3}"
    r"|erklär\w{0,3}|lies|lesen|lest|prüf\w{0,3}|korrigier\w{0,3}|(?:be)?antworte\w?|résum\w{1,4}"
    r"|tradui\w{0,4}|expli\w{2,6}|lis|lire|lisez|corrige[rz]?|répond\w{0,3}|vérifie[rz]?"
    r"|resum\w{1,4}|trad[uú][cz]\w{0,4}|lee|leer|responde[r]?|revisa[r]?|riassum\w{1,4}"
    r"|spieg\w{1,4}|leggi|leggere|correggi|rispondi|rispondere|controlla|leia|ler|corrij\w{1,3}"
    r"|responda|verifi\w{2,4})"
)
_ASKING = re.compile(
    rf"^{LIGHT}(?:(?:can|could|will|would) you |i(?:'d like| want| need) you to |help me (?:to )?"
    r"|give me |write (?:me )?|draft |make |quick |short |a |an |the |take a |have a |your |any "
    r"|kannst du |könntest du |können sie |könnten sie |peux-tu |pouvez-vous |tu peux |puedes "
    r"|podrías |puede |puoi |potresti |pode |podes |poderia |please |mir |me |mal |bitte ){0,6}"
    rf"(?:{_ASKED}\b|[^,]{{1,60}} zusammen\w{{0,10}}\b)"
)
_POLITE = re.compile(
    rf"\b{_ASKED}\b(?=.{{0,200}}?(?:\?|please|bitte|s'il|por favor|per favore)\W*$)"
    rf"|\b(?:make|turn|put|do you understand|do you see|seen) (?:this|these|the {_NOUN})\b(?=.*\?$)"
)
_ASKS_OF_TEXT = re.compile(
    rf"^{LIGHT}(?:what (?:does|do|did) [^,]{{1,60}} (?:say|mean|want|tell)\b|what(?:'s| is| are) "
    rf"(?:{_THIS}|(?:in )?the {_NOUN})\b|who (?:wrote|sent|said)\b"
    r"|(?:is|are|was|were) (?:this|it|that|these|he|she|they) (?:\w+ ){0,2}?"
    r"(?:true|legit|real|right|correct|scam|spam|phishing|safe|genuine|good|serious|ok|okay)\b"
    r"|what (?:do|would) you (?:think|make|say) (?:of|about|to) (?:this|that|these|it|the)\b"
    r"|how (?:should|do|can|would|shall) (?:i|we) (?:reply|respond|answer|react)\b"
    r"|what (?:should|do|can|would|shall) (?:i|we) (?:reply|respond|answer|say|write)\b"
    r"|(?:any )?(?:thoughts|opinions?|comments?)\b\W*$|(?:and )?your (?:thoughts|opinion|take)\b"
    r"|(?:does|do|did) (?:this|that|these|it) (?:sound|look|seem|make|mean|apply)\b"
    r"|(?:should|can|may) (?:i|we) (?:trust|believe|reply|respond|answer)\b"
    r"|was (?:steht|sagt|bedeutet|heißt|meinst|hältst)\b|worum geht\b|stimmt das\b|ist das (?:wahr"
    r"|echt|richtig)\b|(?:qu'est-ce )?que (?:dit|signifie|veut dire|penses-tu|pensez-vous)\b"
    r"|de quoi (?:parle|s'agit)\b|c'est vrai\b|[¿]?qué (?:dice|significa|opinas|piensas)\b"
    r"|[¿]?de qué trata\b|[¿]?es (?:verdad|cierto)\b|(?:che )?cosa (?:dice|significa|ne pensi)\b"
    r"|di cosa parla\b|è vero\b|o que (?:diz|significa|acha|achas)\b|é verdade\b)"
)
_SHOWING = re.compile(
    rf"^{LIGHT}(?:here(?:'s| is| are| comes?)\b|below\b|see (?:below|above|attached)\b|attached\b"
    r"|the following\b|(?:i |we |i've |we've )?(?:just |have |also |recently |only ){0,2}"
    r"(?:got|received|found|saw|seen|read|copied|pasted|came across|overheard|screenshotted)"
    r" (?:this|these|the following)\b"
    r"|(?:this|that|it|these|those|the above) (?:is|was|are|were|came|comes|come|just came|arrived"
    r"|stood|stands)\b[^,]{0,30}\b(?:from|by|what|copied|pasted|quoted|forwarded|in)\b"
    r"|copied from\b|pasted from\b|quot(?:e|ed|ing|ation) |excerpt |source\b|from the \w+$"
    rf"|(?:an? |the |this )?(?:\w+ )?{_NOUN} (?:from|by|von|de|da|di|of)\b[^.!?]{{0,60}}$"
    r"|hier (?:ist|sind|der|die|das|steht|kommt)\b|anbei\b|folgend\w{1,2}\b|voici\b|ci-dessous\b"
    r"|ci-joint\b|aquí (?:está|están|tienes|va)\b|a continuación\b|adjunto\b|ecco\b|di seguito\b"
    r"|qui sotto\b|in allegato\b|aqui (?:está|vai)\b|segue\b|abaixo\b|em anexo\b)"
    r"|\b(?:sent|forwarded|gave|showed|handed|texted|emailed|mailed|has|had|got|shared)"
    r"(?: (?:me|us|round|around|over))? (?:this|these|the following)\b"
    r"|\b(?:forwarded|pasted|copied|screenshot)\b|\bwhat (?:i|we) (?:found|got|received|read|saw)\b"
    r"|\b(?:found|saw|read|seen|spotted)\b[^,]{0,40}\b(?:online|reddit|twitter|facebook|wikipedia"
    r"|internet|web|forum|website|blog|newspaper|news)\b"
    r"|\b(?:the following|as follows)\b|^\W*source\b|\b(?:folgendes|ceci|lo siguiente"
    r"|quanto segue|o seguinte)\W*$"
)
_POINTS_ON = re.compile(
    r"\b(?:following|below|attached|here|folgend\w{0,2}|unten\w{0,4}|anbei|hier|ci-dessous"
    r"|suivante?s?"
    r"|voici|siguientes?|abajo|aquí|seguent[ei]|ecco|sotto|seguintes?|abaixo|segue)\b|:\W*$"
)
# Whatever is said of a text that is there, it may stand beside.
_SPEAKS_OF_TEXT = re.compile(
    rf"\b(?:this|that|these|those|the|dies\w{{1,2}}|cett?e?|est[ae]|quest[ao]|ess[ae])"
    rf" (?:\w+ )?{_NOUN}\b|^\W*{_NOUN}\b|\bthe above\b"
)
_CIVIL = re.compile(rf"^{LIGHT}(?:thanks|thank you|thx|sorry|apologies|cheers) for\b|^sorry for\b")
_FIRST_PERSON = re.compile(
    rf"^{LIGHT}(?:my|our|mein\w{{0,2}}|i(?:'m|'ve|'ll)?|we(?:'re|'ve)?|ich|wir|je|j'\w+|nous"
    rf"|yo|nosotros|io|noi|eu"
    r"|nós)\s"
    r"(?!(?:want|need|would like) you\b)"
)


def asks_about_a_text(sentence: str) -> bool:
    """Whether a sentence asks about, or shows, a text that stands beside it."""
    showing = _SHOWING.search(sentence)
    if showing:
        return not _is_of_the_user(sentence[showing.end() :])
    if _ASKS_OF_TEXT.search(sentence):
        return True
    if _FIRST_PERSON.search(sentence):
        return False
    asking = _ASKING.search(sentence) or _POLITE.search(sentence)
    if asking is None:
        is_own = _CIVIL.search(sentence) or is_own_lead(sentence)
        return _SPEAKS_OF_TEXT.search(sentence) is not None and not is_own
    rest = sentence[asking.end() :].strip(" .!?:")
    if not rest:
        return True
    around = f"{sentence[: asking.start()]} {_INDEFINITE.sub('', rest)}"
    is_about_text = points_at_a_text(around) or " this" in asking.group()
    return is_about_text and not _is_of_the_user(rest)


def points_at_a_text(sentence: str) -> bool:
    """Whether it speaks of "this" or of a letter, page and the like."""
    return _OBJECT.search(sentence) is not None


def points_on(sentence: str) -> bool:
    """Whether the text it speaks of comes after it."""
    return _POINTS_ON.search(sentence) is not None


def _is_of_the_user(words: str) -> bool:
    owner = _OF_THE_USER.search(words)
    # "The message from our supplier" is not ours.
    return owner is not None and not _POINTS_AT.search(words[: owner.start()])


# --- The words of somebody else, suppositions, and what is taken back ---

_REPORTS = re.compile(
    r"\b(?:said|says|wrote|told|tells|texted|tweeted|emailed|mailed|messaged|posted|quoth"
    r"|overheard|gemeint|used to say|keeps \w+ing|to tell you|sagt|sagte|sagten|gesagt|schrieb"
    r"|schrieben|geschrieben|meint|meinte|meinten|behauptet|behauptete|erzählt|erzählte"
    r"|(?:a|ont|avait|m'a|t'a|nous a|il|elle|on) (?:dit|écrit|raconté)|(?:dit|écrit|dice|diz"
    r"|escribe"
    r"|scrive|escreve|schreibt|cuenta) ?(?:que|che|,|:|dass)|affirme|prétend|dijo|dijeron|dicen"
    r"|escribió|escribieron|afirma|disse|dissero|disseram|scrisse|(?:ha|hanno) (?:detto|scritto)"
    r"|escreveu|escreveram|afirmou|zei|zegt|schreef|(?:sign|letter|page|note|they|people|some) say"
    r"|saying(?= (?:that|i|my|we))|(?:claim(?:s|ed)|state[sd]|report(?:s|ed)|mention(?:s|ed)"
    r"|note[sd]|writes|reads|insist(?:s|ed)|announce[sd]|replie[sd]|answer(?:s|ed)|warn(?:s|ed)"
    r"|explain(?:s|ed)|inform(?:s|ed)|confirm(?:s|ed)|add(?:s|ed)|think(?:s)?|believe[sd]"
    r"|suggest(?:s|ed)|argue[sd]|swears|swore|promise[sd]|goes|went|stood|stand(?:s)?)"
    r"(?=[:,]? ?(?:that|i|my|we|our|me|us|like|the user|it|this|so|with|as)\b|[:,]? ?$|:))"
)
_ONE_SAYS = re.compile(
    r"\b(?:i|we) (?:\w+ )?(?:heard|read|saw|learned|gather|understand) (?:that|somewhere|online"
    r"|it said)\b|\b(?:according to|apparently|supposedly|allegedly|reportedly|rumou?r has it"
    r"|word is|hearsay|angeblich|anscheinend|zufolge|selon|d'après|apparemment|según|al parecer"
    r"|a quanto pare|secondo (?!me\b)|segundo (?:o|a|os|as|ele|ela)\b|de acordo com|volgens"
    r"|laut (?:\w))"
)
_SUPPOSES = re.compile(
    r"\b(?:suppose|supposing|imagine|pretend|pretending|assume|assuming|hypothetically|let'?s say"
    r"|what if|for the sake of argument|role-?play\w*|act as|if only|in (?:my|a|the"
    r"|this) (?:dreams?|story|novel|film|movie|game|book|play|scene)"
    r"|stell dir vor|stellen sie sich vor|stellen wir uns vor|nehmen wir an|nimm an|tu so"
    r"|tun wir so"
    r"|(?:mal|gesetzt|^) ?angenommen|supposons|supposez|imaginons|imaginez|faisons comme si"
    r"|fais semblant|supongamos|supón|imagina|imaginemos|finge|finjamos|supponiamo|immagina"
    r"|immaginiamo|facciamo finta|fai finta|suponha|suponhamos|imaginemos|finja|faz de conta"
    r"|stel dat)\b"
)
# "I said", "as I have already told you": the user's own report.
_USER_DOES = re.compile(
    r"\b(?:i|we|i've|we've|i'd|ich|wir|je|j'ai|nous avons|yo|io|ho|eu)"
    r"(?: (?:have|had|already|just|also|once|never|always|often|only|would|can't|cannot|could|do"
    r"|don't|didn't|did|must|should|habe|hatte|haben|schon|gerade|bereits|dir|ihm|ihr|ihnen|déjà|ya"
    r"|già|já|te|ti|lhe|le|can|couldn't|wouldn't|'ve|even)){0,3} ?$"
)
_USER_HAS = re.compile(r"\b(?:ich|wir) (?:habe|hatte|haben|hatten)\b|\b(?:habe|hatte) ich\b")
_SAID_ASIDE = re.compile(
    r"\b(?:that|this) (?:being |having been )?said\b|\bhaving said (?:that|this)\b"
    r"|\beasier said\b"
)
_POINTS_BACK = re.compile(
    rf"^{LIGHT}(?:(?:or |all )?(?:that|this|those|these|such|so|thus)(?:'s|\b)|das\b|dies\w?\b"
    r"|c'est\b|voilà\b|eso\b|esto\b|así\b|questo\b|così\b|isso\b|isto\b|assim\b)"
)
_NOT_MINE = re.compile(
    r"\b(?:not (?:mine|my words?|from me|me talking)|(?:his|her|their|\w+'s) (?:exact |very |own )?"
    r"words|an? (?:direct )?quote|(?:the|a) rumou?r|hearsay|quoted from|end (?:of )?(?:quote"
    r"|message|mail|email|text)"
    r"|unquote|or so (?:\w+ ){1,4}(?:thinks?|says?|claims?|believes?|told)|nicht von mir"
    r"|nicht meine worte"
    r"|pas de moi|pas mes mots|no son mis palabras|non sono parole mie)\b"
)
_TAKES_BACK = re.compile(
    rf"^{LIGHT}(?:(?:that|it|this)(?:'s| is| was|) |i(?:'m| am| was| lied|) |only |all |but "
    r"|is |was "
    r"|war |es |das |c'était |era |un'?a? |uma? |ein |nur |just |solo |só |totally |a ){0,4}"
    r"(?:kidding|joking|jokes?\b|jk\b|j/k|never ?mind|nvm\b|scratch|strike that|not (?:really|true|"
    r"serious)\b|untrue|false\b|(?:a )?lie\b|disregard|ignore (?:that|this|the|all|my)\b"
    r"|forget (?:it"
    r"|that|this|what|about)\b|april fools?|i lied|lied\b|wrong (?:window|chat|person)|my mistake"
    r"|made (?:that|it) up|psych\b|sarcas\w+|no wait|spaß|scherz|witz|vergiss|quatsch|stimmt nicht"
    r"|gelogen|je plaisante|je rigole|plaisant\w+|blague|laisse tomber|oublie|c'est faux|faux\b"
    r"|broma|olvída\w+|no es verdad|mentira|scherz\w+|sto scherzando|lascia perdere|dimentica"
    r"|brincadeira|brincando|esquece|grapje|laat maar)"
    r"|^(?:(?:haha|lol|ha|hah|well|oh)[,!.\s]+)?(?:no|not|nope|nah|as if|i wish|you wish|nein"
    r"|nicht)\W*$"
    r"|(?:^|\s)(?:/s|j/k|jk|nvm)\W*$|\b(?:just|only) (?:kidding|joking)\b"
)
MOST_TO_TAKE_BACK = 10
"""Words of a sentence that takes back what was said; a longer one only begins like it."""


def takes_back(sentence: str) -> bool:
    """Whether it says that what was said before is not meant."""
    found = _TAKES_BACK.search(sentence)
    return found is not None and sentence.count(" ") < MOST_TO_TAKE_BACK


def report_in(sentence: str) -> re.Match[str] | None:
    """The word with which what somebody else says, or a supposition, begins."""
    hearsay = _ONE_SAYS.search(sentence)
    if hearsay:
        return hearsay
    for pattern in (_REPORTS, _SUPPOSES):
        for found in pattern.finditer(sentence):
            before = sentence[max(0, found.start() - 60) : found.start()]
            if not _is_the_users(sentence, found, before):
                return found
    return None


def _is_the_users(sentence: str, found: re.Match[str], before: str) -> bool:
    is_participle = found.group().startswith("ge") and _USER_HAS.search(before)
    is_aside = _SAID_ASIDE.search(sentence[max(0, found.start() - 30) : found.end() + 6])
    return bool(_USER_DOES.search(before) or is_participle or is_aside)


def points_back(sentence: str) -> bool:
    """Whether it tells whose words those before it were."""
    return _NOT_MINE.search(sentence) is not None or (
        _POINTS_BACK.search(sentence) is not None and report_in(sentence) is not None
    )


# --- Lines ---

_HEADER = (
    r"(?:from|to|cc|bcc|subject|date|sent|reply-to|fwd?|fw|re|von|an|betreff|gesendet|datum|wg|aw"
    r"|de|à|objet|envoyé|date|tr|para|asunto|fecha|enviado|rv|da|a|oggetto|inviato|data|assunto"
    r"|enviada|enc|aan|onderwerp|van|message-id|received|return-path)"
)
_HEADER_LINE = re.compile(rf"^[\W_]{{0,4}}{_HEADER}[*_]{{0,2}}\s?:(?:\s|\*|$)")
_FOREIGN_LINE = re.compile(
    r"^\s*(?:([-=_*~#+])\1{2}|(?:- ){3}|\W{0,6}(?:begin |end |start of |anfang der )?(?:forwarded"
    r"|original|weitergeleitete|ursprüngliche|transféré|reenviado|inoltrato|encaminhada)\w?"
    r"(?: (?:message|mail|email|nachricht))?\b"
    r"|(?:message (?:transféré|d'origine)|mensaje reenviado|messaggio inoltrato"
    r"|mensagem (?:encaminhada|original))\b"
    r"|<?(?:https?://|www\.)\S+$|\[?\d{4}-\d\d-\d\d[t ]\d\d:\d\d"
    r"|\[?\d\d?:\d\d(?::\d\d)?(?: ?[ap]m)?"
    r"\]?,? [-\u2013]? ?[\w .]{1,30}:|\[?\d\d?[./]\d\d?[./]\d{2,4},? \d\d?:\d\d"
    r"|\[?(?:trace|debug|info|warn|warning|error|fatal)\]?[: ]\s|traceback |\$ |\|.{0,400}\|\s*$"
    r"|\{|\[\s*[\"{]|#{1,6} (?!.{0,40}\b(?:me|my)\b))"
)
_GREETING = (
    r"(?:hi|hello|hey|dear|good (?:morning|day|afternoon|evening)|greetings|to whom|hallo"
    r"|liebe[rs]?"
    r"|sehr geehrte\w{0,2}|guten (?:tag|morgen|abend)|moin|servus|bonjour|bonsoir|ch[eè]re?s?|salut"
    r"|madame|monsieur|hola|estimad[oa]s?|querid[oa]s?|buen[oa]s \w+|ciao|gentile|egregio"
    r"|buongiorno|buonasera|olá|oi|prezad[oa]s?|car[oa]s?|bom dia|boa (?:tarde|noite)|beste"
    r"|geachte)"
)
_GREETING_LINE = re.compile(rf"^\s*{_GREETING}(?: [^\s,!.:]+){{0,4}}\s?(?:[,!.:;\u2013-]|$)")
_SIGN_OFF = re.compile(
    r"^\s*(?:(?:all the |with )?(?:best|kind(?:est)?|warm(?:est)?|many)(?: regards"
    r"| wishes)?\s?(?:,|$)"
    r"|(?:(?:best|kind|warm|with kind) )?regards\b|(?:yours )?(?:sincerely|truly|faithfully)\b"
    r"|yours\s?(?:,|$)|respectfully\b|(?:mit )?(?:freundliche|beste|herzliche|liebe|viele|schöne)n?"
    r" gr(?:ü|ue)(?:ß|ss)en?|hochachtungsvoll|mfg\b|(?:bien )?cordialement|bien à vous"
    r"|sincères salutations|veuillez agréer|(?:un )?(?:cordial )?saludos?\s?(?:,|$)|atentamente"
    r"|cordiali saluti|distinti saluti|atenciosamente|abraços|com os melhores|met vriendelijke"
    r"|groeten\b|(?:--|\u2013|\u2014|~) ?\w+(?: \w+)?\s*$|sent from my|von meinem iphone"
    r"|envoyé de mon|enviado desde mi|inviato da)"
    r"[^.?!]{0,60}$"
)
_BOILERPLATE = re.compile(
    r"\b(?:unsubscribe|view (?:it |this email )?in (?:your )?browser|all rights reserved"
    r"|do not reply"
    r"|privacy policy|cookie policy|terms of (?:use|service)|read more|abbestellen|se désabonner"
    r"|darse de baja|confidential and intended)\b|©|\(c\) ?\d{4}"
)


def begins_foreign(line: str) -> bool:
    """Whether all from this line on is from outside: a separator, a header, a log, a bare link."""
    return _FOREIGN_LINE.search(line) is not None or _HEADER_LINE.search(line) is not None


def greets(line: str) -> bool:
    """Whether a letter may begin with this line."""
    return _GREETING_LINE.search(line) is not None


def ends_a_letter(line: str) -> bool:
    """Whether a letter, a newsletter or a page ends with this line."""
    return _SIGN_OFF.search(line) is not None or _BOILERPLATE.search(line) is not None


# --- What stands before a colon ---

_COLON = re.compile(r"\s?:(?=\s|$)")
_OWN_LEAD = re.compile(
    rf"^[\W\d]{{0,6}}{LIGHT}(?:i(?:'m|'ve)?|we(?:'re|'ve)?|my|our|mine|(?:some |more "
    r"|all )?about (?:me|us)"
    r"|(?:please )?(?:remember|note|save|memori[sz]e|record|keep in mind|don't forget|do not forget"
    r"|make a note|for the record|so you know|for your information|by the way)"
    r"|(?:here(?:'s| is| are) )?(?:an? |some |one |two |three |few |more |other |last |quick "
    r"|fun |random"
    r" |important |little |bit ){0,4}(?:facts?|things?|info|information|details?|updates?"
    r"|background)"
    r"(?: (?:about|on|for) (?:me|us|you|my \w+))?|here(?:'s| is| are) (?:my|our|what i)\b[^:]{0,40}"
    r"|fyi|btw|p\.?s|questions?|to be clear|in fact|long story short|in other words|reminder"
    r"|correction|context|background|in short|important|warning|(?:preferences?"
    r"|requirements|constraints|allergies|goals?|hobbies|interests|likes|dislikes|name|age|city"
    r"|country|address|phone|e-?mail|birthday|job|occupation|languages?|time ?zone|diet"
    r"|pronouns)(?=\W*$)"
    r"|(?:this is|these are|that's|das ist|c'est|esta? es|este es|questo è|quest[ao] è|est[ea] é)"
    r" (?:my|our|mein\w{0,2}|mon|ma|mi|il mio|la mia|o meu|a minha)"
    r"|mein\w{0,2}|unser\w{0,2}|ich|wir|über mich|merke? dir|merken|beachte|notier\w?|denk dran"
    r"|übrigens|wichtig|zur info|mon|ma|mes|notre|nos|je|j'\w+|à propos de moi|retiens|rappelle-toi"
    r"|souviens-toi|mis?|nuestr[oa]s?|yo|sobre mí|recuerda|anota|il mio|la mia|i miei|le mie"
    r"|ricorda"
    r"|su di me|(?:o |a |os |as )?(?:meus?|minhas?)|eu|sobre mim|lembr[ea]|anote)\b"
)
_FOREIGN_LEAD = re.compile(
    r"\b(?:got|received|found|saw|seen|read|heard|copied|pasted|quote|quoting|told|asked"
    r"|reply|replied"
    r"|answer(?:ed)?|wrote|words|inbox|statement|letter|log|logs|transcript|article|page|draft"
    r"|translate|boss|chef|manager|colleague|co-?worker|wife|husband|partner|sister|brother|mother"
    r"|father|mum|mom|dad|friend|flatmate|roommate|doctor|landlord|client|customer|teacher|lawyer"
    r"|accountant|neighbou?r|son|daughter|uncle|aunt|bank|vermieter|chefin|frau|mann|schwester"
    r"|bruder|mutter|vater|freund(?:in)?|kolleg(?:e|in)|patron|ami|amie|sœur|frère|jefe|jefa|amigo"
    r"|amiga|hermano|hermana|capo|amico|amica)\W*$"
    r"|\b(?:got|received|found|saw|heard|copied|pasted|quote|was told)\b"
)
_FIELD = re.compile(r"^[\W\d]{0,6}(?:[^\s:]+ ){0,2}[^\s:]+ ?: ?\S")
_SPEAKS = re.compile(
    r"\b(?:i|my|me|mine|we|our|us|ich|mich|mir|mein\w{0,2}|wir|uns|unser\w{0,2}|je|j|moi|mon|ma|mes"
    r"|nous|nos|notre|yo|mi|mis|nosotr[oa]s|nuestr[oa]s?|io|mio|mia|miei|mie|noi|nostr[oaie]|eu|meu"
    r"|minha|nosso|nossa)\b"
)
_IS_LIST_ITEM = re.compile(r"^(?:[-*•+]|\d+[.)])\s")
_ENDS = re.compile(
    r"[.!?…:;,)\]]\W*$|^(?:thanks|thank you|thx|ok|okay|yes|no|cheers|danke|merci)\b"
)


def speaks_of_self(sentence: str) -> bool:
    """Whether a sentence has a word for who says it."""
    return _SPEAKS.search(sentence) is not None


def is_title(line: str) -> bool:
    """Whether a line without a full stop may head what stands below it."""
    is_sentence = _ENDS.search(line) or _IS_LIST_ITEM.search(line) or greets(line)
    return not is_sentence and not is_own_lead(line)


def colon_in(sentence: str) -> re.Match[str] | None:
    """The colon that a list or somebody's words follow."""
    return _COLON.search(sentence)


def is_own_lead(lead: str) -> bool:
    """Whether what follows these words and a colon is still the user speaking."""
    return _OWN_LEAD.search(lead) is not None and _FOREIGN_LEAD.search(lead) is None


def is_field(sentence: str, colon: re.Match[str]) -> bool:
    """Whether a line of a list is "key: value", and nobody speaks in it."""
    return _FIELD.search(sentence) is not None and not _SPEAKS.search(sentence[colon.end() :])
