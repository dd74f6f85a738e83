"""Words that ask for nothing: greetings, thanks, apologies, interjections, polite openings."""

from __future__ import annotations

import re
import unicodedata

# Marks of Arabic, of Indic scripts and of Thai stand inside their words.
_WORD = re.compile(r"[^\W_][\w'\u2019\u0610-\u061a\u064b-\u065f\u0900-\u0dff\u0e00-\u0eff-]*")
_LONGEST_COURTESY = 160
"""A sentence longer than this says something."""

# A line is one alternative or several; of two with the same beginning the longer stands first.
_COURTESIES = r"""
thank(?:s| you| u)|thx|ty|cheers|much appreciated
(?:i |we )?(?:really |do |would )*appreciate (?:it|that|this|your (?:help|time|work|patience))
hi|hiya|hello|hey|howdy|greetings|dear (?:assistant|all|team|sir|madam)|welcome back
good ?(?:morning|afternoon|evening|day|night|bye)|morning|evening|g'day|bye(?:[ -]bye)?|cya|ciao
see (?:you|ya)|(?:talk|speak|chat) (?:to you )?(?:later|soon|tomorrow)|take care|gtg|gotta go|brb
(?:i )?hope (?:all is|you(?:'re| are)) (?:doing )?well
(?:i )?hope you (?:had|have) an? (?:good|nice|great|lovely) \w+
have an? (?:good|nice|great|lovely|safe|wonderful) \w+
happy (?:\w+day|new year|holidays|easter|christmas)|merry christmas|congrats|congratulations
(?:nice|good|pleased|great) to (?:meet|see|hear from|talk to) you|how do you do
how(?:'s| is| are|'re) (?:you|it|things|everything|life)(?: doing| going| feeling)?|what'?s up
(?:i(?:'m| am) )?(?:so |very |really )*sorry (?:to (?:bother|disturb|interrupt)|for asking)(?: you)?
(?:i(?:'m| am) )?(?:so |very |really )*sorry(?: for the \w+)?
my bad|my apologies|apologies|excuse me|pardon(?: me)?|oops
(?:kind|best|warm) (?:regards|wishes)|regards|sincerely|yours (?:truly|sincerely)
you(?:'re| are) (?:so |very |really )*(?:the best|welcome|great|amazing|awesome|kind|funny)
you(?:'re| are) an? (?:star|lifesaver|legend|gem)|my pleasure|no (?:worries|problem|rush)|np
never ?mind|nvm|forget (?:it|about it)|(?:that's|that is|that was) (?:all|it|everything|enough)
(?:that|this|it)(?:'s| is| was) (?:so |very |really |pretty |quite )*(?:funny|hilarious|crazy|wild)
(?:that|this|it)(?:'s| is| was) (?:so |very |really |pretty |quite )*(?:helpful|useful|kind|sweet)
(?:that|this|it)(?:'s| is| was) (?:so |very |really )*(?:awesome|amazing|cool|lovely|brilliant)
(?:that|this|it)(?:'s| is| was) (?:so |very |really )*(?:great|good|nice|perfect|interesting)
(?:that|this|it) (?:really |already )*help(?:s|ed)|helpful|well done|made my day|got it
(?:good|great|nice|excellent) (?:job|work|stuff|one)|(?:i )?(?:love|like) (?:it|that|this)
just (?:kidding|joking|saying)|i(?:'m| am) (?:good|fine|done|back)|nothing(?: else| more)?
how (?:funny|nice|cute|sweet|lovely)|fair enough|anyways?|whatever|quick question|funny story
(?:ba|mua)?(?:h[aei]){2,}h?|aha|lo+l|lmao|rofl|xd|phew|wow+|whoa|ugh+|argh|hm+|u[hm]+|yay|omg
awesome|wonderful|fantastic|excellent|brilliant|amazing|yikes|ouch|meh
(?:vielen |tausend |besten |herzlichen )?dank|danke(?: ?schön| sehr)?|hallo|moin|servus
guten? (?:morgen|tag|abend|nacht)|grüß (?:gott|dich)|tschüss|auf wiedersehen|mach'?s gut
entschuldigung|entschuldigen sie|entschuldige|tut mir leid|bis (?:morgen|später|bald|dann)
schöne[ns]? (?:tag|abend|feierabend|wochenende)|wie geht(?:'s| es)(?: dir| ihnen)?
(?:liebe|viele|beste|schöne) grüße|mit freundlichen grüßen|kein problem|alles klar|vergiss es
das (?:hilft|ist|war) (?:mir )?(?:sehr |wirklich )?(?:super|toll|lustig|nett|weiter|klasse)
merci(?: beaucoup| bien)?|bonjour|bonsoir|salut|coucou|au revoir|à (?:demain|bientôt|plus tard)
bonne (?:nuit|journée|soirée)|bon week-end|désolée?|excuse[sz]?-moi|cordialement|enchantée?
(?:comment )?[çc]a va|comment allez-vous|laisse[sz]? tomber|tant pis|pas de (?:souci|problème)|mdr
c'est (?:très |trop )?(?:drôle|super|gentil|parfait|génial)
(?:muchas |mil )?gracias|hola|buen(?:os|as) (?:d[ií]as|tardes|noches)|adi[óo]s|nos vemos|de nada
hasta (?:mañana|luego|pronto)|perd[óo]na?|disculp[ae]|lo siento|saludos|qu[ée] tal|genial
c[óo]mo est[áa]s?|no importa|olv[íi]dalo|qu[ée] (?:gracioso|risa)|(?:ja){2,}
grazie|obrigad[oa]|спасибо|привет|ありがとう(?:ございます)?|こんにちは|谢谢|謝謝|你好|감사합니다|고마워
"""
# They say nothing beside a courtesy; alone some of them are a yes.
_FILLERS = """
a an the so very much many really lot lots bunch ton tons million again all everyone everybody
there you for your help answer answers time reply today tonight tomorrow later soon now then and oh
ah well man mate dude buddy friend friends folks guys team assistant my me to too ever as always but
no nope ok okay k alright right great good nice cool perfect fine super sounds looks just that
in advance next week monday tuesday wednesday thursday friday saturday sunday
sehr viel vielmals mal für die deine ihre hilfe nochmal und dir ihnen alle alles gut klasse toll
prima na dann heute noch pour votre ton aide beaucoup et tous tout le monde bien très
por tu su la ayuda muy mucho y todos todo hoy
"""
_COURTESY = re.compile(rf"(?<!\S)(?:{'|'.join(_COURTESIES.casefold().split(chr(10))[1:-1])})(?!\S)")
_FILLER = frozenset(_FILLERS.casefold().split())

# What stands before the thing asked for; the rest of the sentence is the question.
_OPENERS = r"""
(?:hi|hello|hey|hallo|bonjour|salut|hola)(?: there| again| all)?[,!]|good (?:morning|evening)[,!]
dear \w+,|guten (?:morgen|tag|abend)[,!]|buenos d[ií]as[,!]|buenas tardes[,!]
(?:(?:ok|okay|so|anyway|alright|haha|lol|btw|by the way|oh|um|hm+)\b[,!:]* ?){1,4}|(?:well|right),
(?:(?:first of all|quick question|one (?:more )?question|just (?:a quick one|wondering))\b)[,:]?
(?:i(?:'m| am) )?sorry (?:to|for) (?:bother|ask|disturb)\w*(?: you)?(?: again)?,?(?: but)?
(?:excuse me|pardon me|sorry),?(?: but)?|if (?:it|that) (?:isn't|is not) too much trouble,?
if (?:you don't mind|i may ask|possible),?|please,?|kindly
(?:may|can|could|might) i (?:please |just )?ask(?: you)?(?:,? please)?,?
(?:could|can|would|will) you (?:please |kindly |maybe |perhaps |quickly |just )*@
(?:would|do) you mind (?:telling me|reminding me|letting me know|looking up|checking)
would you be so (?:kind|good) (?:as to|and) (?:please )?@
i(?:'d| would) be (?:very |so |really )?(?:grateful|happy) if you (?:could|would) (?:please )?@
i(?:'d| would) (?:really )?(?:like|love|need) to know|i (?:was|am) (?:just )?wondering
do you (?:happen to |still |by any chance )?(?:know|remember|recall)|@
(?:könnten|können|würden) sie (?:mir )?(?:bitte )?(?:sagen|erinnern|verraten),?
(?:könntest|kannst|würdest) du (?:mir )?(?:bitte )?(?:kurz |noch ?mal )?(?:sagen|verraten),?
(?:weißt|wissen) (?:du|sie)(?: noch)?,?|sag(?:en sie)? mir (?:bitte )?,?|bitte,?
(?:pourriez|pouvez)-vous (?:s'il vous plaît )?me (?:dire|rappeler)|s'il (?:te|vous) plaît,?
(?:pourrais|peux)-tu (?:s'il te plaît )?me (?:dire|rappeler)|dis-moi|dites-moi
(?:podrías|podría|puedes|puede) (?:por favor )?(?:decirme|recordarme)|por favor,?|dime
""".replace("@", r"(?:tell|remind|let) me(?: know)?(?: again)?(?:,? please)?,?")
_OPENER = re.compile(rf"[¿¡]?(?:{'|'.join(_OPENERS.split(chr(10))[1:-1])})(?!\S)\s*", re.IGNORECASE)
_CLOSER = re.compile(
    r"(?:,? (?:please|thanks|thank you|bitte|danke|s'il (?:te|vous) plaît|merci|por favor|gracias)"
    r"(?: (?:so|very) much| a lot)?)+(?=\W*$)",
    re.IGNORECASE,
)
_MOST_OPENERS = 5


def read_words(text: str) -> list[str]:
    """The words of a text, folded, one spelling of the apostrophe."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return [word.replace("\u2019", "'").rstrip("'-") for word in _WORD.findall(folded)]


def is_courtesy(sentence: str) -> bool:
    """Whether a sentence is nothing but greeting, thanks, apology or interjection."""
    if len(sentence) > _LONGEST_COURTESY:
        return False
    words = " ".join(read_words(sentence))
    rest = _COURTESY.sub(" ", words)
    return rest != words and _FILLER.issuperset(rest.split())


def without_courtesy(sentence: str) -> str:
    """A sentence without its polite opening and closing; as it stands if nothing else is left."""
    rest = sentence.replace("\u2019", "'")
    for _ in range(_MOST_OPENERS):
        opener = _OPENER.match(rest)
        if not opener:
            break
        rest = rest[opener.end() :]
    rest = _CLOSER.sub("", rest).strip()
    return rest if len(read_words(rest)) > 1 else sentence
