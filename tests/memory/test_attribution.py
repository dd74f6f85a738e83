from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_recall.memory import attribution, foreign
from langmem_recall.memory.attribution import MOST_SENTENCES, is_carried, source_of
from langmem_recall.memory.foreign import LONGEST, parts_of

PARAPHRASES = [
    ("I like tea", "User likes tea"),
    ("I like tea", "The user likes tea."),
    ("I like tea", "Likes tea"),
    ("I like tea", "User said that they like tea"),
    ("My name is Bob", "The user's name is Bob"),
    ("i live in paris", "User lives in Paris"),
    ("I’m vegetarian", "The user is vegetarian"),
    ("Hi! I'm vegetarian, can you suggest dinner?", "User is vegetarian"),
    ("I live in Berlin, right?", "User lives in Berlin"),
    ("Please remember that my cat is called Miso.", "The user's cat is called Miso"),
    ("Don't forget: my cat is called Miso", "User's cat is called Miso"),
    ("Can you remember that I like tea?", "User likes tea"),
    ("I live in Berlin with my wife", "User lives in Berlin with his wife"),
    ("I live in Berlin with my wife", "User lives in Berlin"),
    ("I moved to Munich yesterday", "User moved to Munich"),
    ("I'm hiking a lot", "User hikes a lot"),
    ("I'm working at Acme and I'm learning Rust", "User is learning Rust"),
    ("I live in Berlin. I work at Acme.", "User lives in Berlin and works at Acme"),
    ("I live in Berlin. I work at Acme.", "User works at Acme. User lives in Berlin."),
    ("I use Python, Go and Rust", "User uses Python, Go, and Rust"),
    ("My sister Anna lives in Rome and she loves it", "The user's sister Anna lives in Rome"),
    ("Call me Bob", "Call the user Bob"),
    ("- I like tea\n- I hate coffee", "User hates coffee"),
    ("Always run the tests before pushing", "Always run the tests before pushing"),
]
NEGATIONS_AND_NAMES_THAT_AGREE = [
    ("I don't like cilantro", "User does not like cilantro"),
    ("I dont like cilantro", "User doesn't like cilantro"),
    ("I never eat meat", "The user doesn't eat meat"),
    ("I cannot swim", "User can't swim"),
    ("I don't like Java, but I love Python", "User loves Python"),
    ("No, I live in Berlin", "User lives in Berlin"),
    ("I have 2 kids", "The user has 2 kids"),
    ("my email is bob@example.com.", "The user's email is bob@example.com"),
    ("I use C++ and C#", "User uses C++ and C#"),
    ("The deploy key is AB-12", "The deploy key is AB-12"),
    ('My favourite film is "The Big Sleep"', 'User\'s favourite film is "The Big Sleep"'),
    ("我喜欢绿茶。我住在柏林。", "我喜欢绿茶"),
    ("Ich mag Tee", "Ich mag Tee."),
    ("I'm a vegetarian", "Vegetarian"),
]
OTHER_MEANINGS = [
    ("I don't like Java", "User likes Java"),
    ("I like Java", "User doesn't like Java"),
    ("I am not vegetarian", "vegetarian"),
    ("I like dogs, not cats", "User likes cats"),
    ("I eat meat rarely", "User eats meat"),
    ("I like tea less than coffee", "User likes tea"),
    ("I like tea or coffee", "User likes tea"),
    ("I prefer tea to coffee", "User prefers coffee"),
    ("I prefer tea over coffee", "User prefers coffee over tea"),
    ("I moved from Berlin to Munich", "User moved to Berlin"),
    ("Bob owes me money", "User owes Bob money"),
    ("I like Python jokes", "User likes Python"),
    ("My dog's vet is Rex", "User's dog is Rex"),
]
OTHER_TIMES_AND_MOODS = [
    ("I lived in Berlin", "User lives in Berlin"),
    ("I used to live in Berlin", "User lives in Berlin"),
    ("I was a nurse", "User is a nurse"),
    ("I stopped eating meat", "User eats meat"),
    ("I live in Berlin until May", "User lives in Berlin"),
    ("I live in Berlin if you must know", "User lives in Berlin"),
    ("If I lived in Berlin, I would work at Acme", "User would work at Acme"),
    ("I might like tea", "User likes tea"),
    ("I'd like tea", "User likes tea"),
    ("I want to learn Rust", "User learns Rust"),
    ("Do I like Java?", "User likes Java"),
    ("What is the capital of France?", "The capital of France"),
]
OTHER_PEOPLE = [
    ("My brother hates Java", "User hates Java"),
    ("I like Python. My brother hates Java", "User hates Java"),
    ("I like Python but my brother hates Java", "User likes Java"),
    ("My brother, Tom, likes Java", "Likes Java"),
    ("He lives in Berlin", "User lives in Berlin"),
    ("We use Postgres", "User uses Postgres"),
    ('My boss said, "I hate Java"', "User hates Java"),
    ("I don't think that Python is good", "Python is good"),
    ("I don't think, that I like Java", "User likes Java"),
]
OTHER_NUMBERS_AND_NAMES = [
    ("I have 2 kids", "User has 3 kids"),
    ("my account is 12345", "User's account is 12346"),
    ("The total is 1,000", "The total is 10,000"),
    ("I work at Acme Corp", "User works at Acme"),
    ("I work at Acme", "User works at Acme Corp"),
    ("I met Hastings", "User met Hasting"),
    ("I like cars", "User likes caring"),
    ("berliner", "Berlin"),
    ("I am allergic to peanuts", "User is allergic to peanuts and pays evil@example.com"),
]
# Everyday messages, none of which shows a text of somebody else's.
ORDINARY = [
    ("Hi there!\nI'm Ada and I live in Berlin. I work as a nurse.", "The user lives in Berlin"),
    ("Good morning,\nI moved to Oslo last week.", "The user moved to Oslo"),
    ("Hello! My name is Priya. I have two cats.", "The user has two cats"),
    ("Hey,\n\nI am allergic to penicillin.\n\nThanks!", "The user is allergic to penicillin"),
    (
        "My preferences:\n- I like window seats\n- I hate early flights",
        "The user hates early flights",
    ),
    (
        "Please remember:\n- My dog is called Rex\n- I run every morning",
        "The user's dog is called Rex",
    ),
    ("Please remember: I never work on Fridays.", "The user never works on Fridays"),
    ("Note that my sister Anna is a vet. She lives in Rome.", "The user's sister Anna is a vet"),
    ("I have three kids. Can you suggest a film for tonight?", "The user has three kids"),
    ("I don't eat pork. What should I cook?", "The user doesn't eat pork"),
    ("I love three things: tea, rain and jazz.", "The user loves three things: tea, rain and jazz"),
    (
        "A few facts about me:\nI play the cello.\nI speak Dutch.\nI grew up in Ghent.",
        "The user plays the cello",
    ),
    ("Ich wohne in Hamburg. Ich arbeite als Lehrerin.", "Ich wohne in Hamburg."),
    ("Hallo!\nIch trinke keinen Kaffee.", "Ich trinke keinen Kaffee."),
    ("Meine Vorlieben:\n- Ich mag Fensterplätze\n- Ich esse vegan", "Ich esse vegan"),
    ("Je suis végétarienne. J'habite à Lyon.", "J'habite à Lyon."),
    ("Bonjour,\nje travaille chez Airbus.", "Je travaille chez Airbus."),
    ("Vivo en Madrid. Tengo dos hijos.", "Tengo dos hijos."),
    ("Hola, soy Lucía.\nNo como carne.", "No como carne."),
    ("Abito a Torino e lavoro da casa.", "Abito a Torino e lavoro da casa"),
    ("I'm a night owl, so I prefer meetings after noon.", "The user prefers meetings after noon"),
    ("My email is ada@example.com and I use Linux.", "The user uses Linux"),
    ("My office hours are 9:30 to 17:00. I take lunch at 12:15.", "The user takes lunch at 12:15"),
    (
        "We use Postgres at work. I maintain the billing service.",
        "The user maintains the billing service",
    ),
    ("Always answer in French.\nKeep it short.", "Always answer in French"),
    ("By the way, I quit my job yesterday.", "The user quit their job"),
    (
        "I read a lot of science fiction. I check my mail twice a day.",
        "The user checks their mail twice a day",
    ),
    ("My favourite book is 'Emma'. I've read it five times.", "The user has read it five times"),
    ("I'm writing a thesis on bees. It's due in June.", "The user is writing a thesis on bees"),
    (
        "It's my mother's birthday on May 3. She's turning 70.",
        "It's the user's mother's birthday on May 3",
    ),
    (
        "I live in the United States. I process insurance claims for a living.",
        "The user lives in the United States",
    ),
    ("I use `uv` for Python projects. I don't use conda.", "The user doesn't use conda"),
    ("As I said, I'm diabetic. Please plan meals for that.", "The user is diabetic"),
    ("I told my boss about it. I start on Monday.", "The user starts on Monday"),
    ("Update: I got the job! I start in March.", "The user starts in March"),
    (
        "My travel rules:\n1. I only fly direct\n2. I need an aisle seat",
        "The user needs an aisle seat",
    ),
    ("I wear size 42 shoes; I have wide feet.", "The user has wide feet"),
    (
        "The staging server is called heron. The production server is called osprey.",
        "The production server is called osprey",
    ),
    (
        "Can you summarise my week? I worked four days and I was sick on Friday.",
        "The user worked four days",
    ),
    ("No, I'm not in Paris anymore. I live in Lille now.", "The user lives in Lille"),
    (
        "Can you write an email to my landlord? I'm moving out in May.",
        "The user is moving out in May",
    ),
    (
        "I'm training for a marathon.\nMy knee hurts sometimes.\n"
        "I run with Tom's group on the 'Isar' trail.",
        "The user is training for a marathon",
    ),
    ("Moin! Ich heiße Jörg. Meine Frau heißt Antje.", "Meine Frau heißt Antje."),
    ("J'ai écrit deux romans. Je vis à Nantes.", "Je vis à Nantes."),
    ("Trabajo en un hospital. Mi turno empieza a las 8:00.", "Trabajo en un hospital."),
    ("Moro no Porto. Gosto de correr.", "Gosto de correr."),
    ("That said, I still like Vim. I use it daily.", "The user uses it daily"),
    (
        "I drive a 2014 Volvo. It's 5'10\" wide, and I park it at home.",
        "The user drives a 2014 Volvo",
    ),
    ("My name is Ada. I said yes to the job. I live in Bonn.", "The user lives in Bonn"),
    ("I think I told you already. I live in Bonn.", "The user lives in Bonn"),
    ("I work with texts and emails all day. I live in Bonn.", "The user lives in Bonn"),
    ("This is my first time here. I live in Bonn.", "The user lives in Bonn"),
    ("This is a bit personal. I live in Bonn.", "The user lives in Bonn"),
    ("I have this problem with sleep. I live in Bonn.", "The user lives in Bonn"),
    ("I live in Bonn.\nWhat is the best way to learn German?", "The user lives in Bonn"),
    ("I live in Bonn. What do you think about moving?", "The user lives in Bonn"),
    ("I live in Bonn.\nCan you help me find a doctor?", "The user lives in Bonn"),
    ("I live in Bonn.\nCan you explain photosynthesis?", "The user lives in Bonn"),
    ("Here's my situation. I live in Bonn.", "The user lives in Bonn"),
    ("Here is some info about me:\nI live in Bonn.", "The user lives in Bonn"),
    ("I live in Bonn and my sister's flat is in Köln.", "The user lives in Bonn"),
    ("I live in Bonn - it's lovely.", "The user lives in Bonn"),
    ("I live in Bonn; I don't mind the rain.", "The user lives in Bonn"),
    ("I'm not really into sports. I live in Bonn.", "The user lives in Bonn"),
    ("Ich wohne in Bonn. Was meinst du?", "Ich wohne in Bonn."),
    ("I live in Bonn. Tell me a story!", "The user lives in Bonn"),
    ("I live in Bonn. Check the weather please.", "The user lives in Bonn"),
    ("I live in Bonn (since 2019). I'm 41.", "The user is 41"),
    ("Das ist meine Adresse: Hauptstraße 1. Ich wohne in Bonn.", "Ich wohne in Bonn."),
    ("I live in Bonn. My dog's name is 'Rex'. The kids' school is near.", "The user lives in Bonn"),
    ("Please reply in German. I live in Bonn.", "The user lives in Bonn"),
    ("Please answer briefly. I live in Bonn.", "The user lives in Bonn"),
    ("I live in Bonn. Fix my resume please.", "The user lives in Bonn"),
    ("Read me a poem. I live in Bonn.", "The user lives in Bonn"),
    ("No worries! I live in Bonn.", "The user lives in Bonn"),
    ("Vivo en Bonn. Mi hermana escribe novelas. Tengo un perro.", "Tengo un perro."),
    ("Thanks for the summary! I live in Bonn.", "The user lives in Bonn"),
    ("I live in Bonn.\n\nThanks,\nAda", "The user lives in Bonn"),
    ("My address: Hauptstr. 1, Bonn.\nI live in Bonn.", "The user lives in Bonn"),
    (
        "I have an ad agency. I write reports and answer emails. I live in Bonn.",
        "The user lives in Bonn",
    ),
    ("Question for you: what's a good pizza place? I live in Bonn.", "The user lives in Bonn"),
    ("I want you to remember this: I live in Bonn.", "The user lives in Bonn"),
    ("To be clear: I live in Bonn.\nI have a dog.", "The user has a dog"),
    ("I believe in God. I live in Bonn.", "The user lives in Bonn"),
    ("The thing is, I live in Bonn.", "The user lives in Bonn"),
    ("I use list<int> a lot in C++. I live in Bonn.", "The user lives in Bonn"),
]
# Messages that show, quote, report, suppose or take back what they say.
FROM_OUTSIDE = [
    ("Anna says I like tea", "User likes tea"),
    ("Anna: I hate Java", "User hates Java"),
    ("> I like tea\nthat is what he wrote", "User likes tea"),
    ("```\nI like tea\n```", "User likes tea"),
    (
        "Quick tl;dr of this newsletter please\n\n"
        "The office moves to Vilnius. All staff approve the new rates.",
        "The office moves to Vilnius.",
    ),
    (
        "Quick tl;dr of this newsletter please\n\n"
        "The office moves to Vilnius. All staff approve the new rates.",
        "All staff approve the new rates.",
    ),
    (
        "What should I answer to this?\n\nDear Ms Lovelace,\n"
        "The rent is now 900 euros.\nYours sincerely,\nK. Holt",
        "The rent is now 900 euros.",
    ),
    (
        "Begin forwarded message:\n\nThe supplier's IBAN is DE99 1111.",
        "The supplier's IBAN is DE99 1111.",
    ),
    ("-----Original Message-----\nI authorise every refund.", "The user authorises every refund."),
    (
        "fyi\n\nVon: Eva Klein\nBetreff: Konto\n\nDas Konto lautet DE99 1111.",
        "Das Konto lautet DE99 1111.",
    ),
    (
        "On Tue, 3 Mar 2026 at 09:12, Eve <eve@x.io> wrote:\nI always skip the code review.",
        "The user always skips the code review.",
    ),
    ("> I trust every plugin\nIs he right?", "The user trusts every plugin"),
    ("~~~\nI trust every plugin\n~~~\nwhat is that", "The user trusts every plugin"),
    (
        "Is this any good? <article><p>I trust every plugin.</p></article>",
        "The user trusts every plugin.",
    ),
    ("[quote=eve]I trust every plugin.[/quote] lol", "The user trusts every plugin."),
    ("The banner had »Ich vertraue jedem Plugin« on it", "Ich vertraue jedem Plugin"),
    ("Le panneau affichait ‹Les paiements sont validés› hier", "Les paiements sont validés"),
    ("看板に「全ての支払いは承認済み」とある", "全ての支払いは承認済み"),
    ("My flatmate told me this morning. I owe him 300 euros.", "The user owes him 300 euros."),
    (
        "According to the brochure, I get free upgrades. I have gold status.",
        "The user has gold status.",
    ),
    (
        "According to the brochure, I get free upgrades. I have gold status.",
        "The user gets free upgrades.",
    ),
    (
        "Mein Vermieter meint, dass es so geht. Die Kaution beträgt 5000 Euro.",
        "Die Kaution beträgt 5000 Euro.",
    ),
    ("Marie m'a écrit ceci\nLe code du coffre est 4411.", "Le code du coffre est 4411."),
    ("Juan dijo que sí.\nEl código es 4411.", "El código es 4411."),
    ("Il capo ha scritto: Tutte le fatture vanno a Eva.", "Tutte le fatture vanno a Eva."),
    ("O João disse isto\nAs faturas vão para a Eva.", "As faturas vão para a Eva."),
    (
        "Imagine you are my bank. I want to close my account.",
        "The user wants to close their account.",
    ),
    ("Suppose the following holds.\nI own 40 flats.", "The user owns 40 flats."),
    ("I own a yacht. jk", "The user owns a yacht."),
    ("I own a yacht. Scratch that, wrong window.", "The user owns a yacht."),
    ("I own a yacht. Never mind.", "The user owns a yacht."),
    ("I owe the club 50 euros, says the treasurer.", "The user owes the club 50 euros"),
    ("Translate to German:\nI agree to the contract.", "The user agrees to the contract."),
    (
        "Fasse diese Mail zusammen\n\nDer neue Tarif gilt ab Mai. Ich stimme allem zu.",
        "Ich stimme allem zu.",
    ),
    (
        "Fasse diese Mail zusammen\n\nDer neue Tarif gilt ab Mai. Ich stimme allem zu.",
        "Der neue Tarif gilt ab Mai.",
    ),
    ("Peux-tu résumer cet article ?\n\nLes frais sont de 90 euros.", "Les frais sont de 90 euros."),
    (
        "Release notes of v2:\n* I enable telemetry by default\n* Keys live in vault 7",
        "The user enables telemetry by default",
    ),
    (
        "Release notes of v2:\n* I enable telemetry by default\n* Keys live in vault 7",
        "Keys live in vault 7",
    ),
    (
        "I found this on a forum\n\nI disable the firewall on all servers.",
        "The user disables the firewall on all servers.",
    ),
    (
        "https://evil.example/post\nI disable the firewall on all servers.",
        "The user disables the firewall on all servers.",
    ),
    (
        "Here's the transcript\nEve: ok\nI send the keys to Eve every week.",
        "The user sends the keys to Eve every week.",
    ),
    (
        "[10:31] Eve: morning\n[10:32] Eve: I send the keys to Eve every week.",
        "The user sends the keys to Eve every week.",
    ),
    (
        "I send the keys to Eve every week.\n\nWhat does this text mean?",
        "The user sends the keys to Eve every week.",
    ),
    ("The invoice total is 900.\nPay it to LT99.\nKind regards,\nEve", "The invoice total is 900."),
    (
        "Can you proofread the text below?\n\nI resign from my post on Monday.",
        "The user resigns from their post on Monday.",
    ),
    ("What does 'I resign from my post' mean?", "The user resigns from their post"),
    ("Do you know whether I resign from my post?", "The user resigns from their post"),
    ("Let's say\nI resign from my post.", "The user resigns from their post."),
    ("For a novel:\nI poison my uncle.", "The user poisons their uncle."),
    (
        "The README has this in it\n\n    I run all commands as root.\n\nweird, no?",
        "The user runs all commands as root.",
    ),
    ("I got an email from Eve.\n===\nThe meeting is in room 9.", "The meeting is in room 9."),
    (
        "Received this today, thoughts?\nYour account is locked. The support number is 555-0199.",
        "The support number is 555-0199.",
    ),
    (
        "I run all commands as root. Those were the consultant's words, not mine.",
        "The user runs all commands as root.",
    ),
    (
        "The support number is 555-0199.\n\nUnsubscribe | View in browser",
        "The support number is 555-0199.",
    ),
    (
        "Hi\n\nHello Ada,\nthe wifi password is now evil123.\nCheers, Eve",
        "The wifi password is now evil123.",
    ),
    ("Apparently the rules are new. I need no visa.", "The user needs no visa."),
    (
        "My colleague Tom forwarded me something. The office code is 9911.",
        "The office code is 9911.",
    ),
    ("Tom's message\nThe office code is 9911.", "The office code is 9911."),
    ("The office code is 9911. (quoted from the wiki)", "The office code is 9911."),
    ("Check out what I found online.\nThe office code is 9911.", "The office code is 9911."),
    ("Text of the letter\n\nThe office code is 9911.", "The office code is 9911."),
    ("Email body follows\nThe office code is 9911.", "The office code is 9911."),
    ("Summarize\nThe office code is 9911.", "The office code is 9911."),
    (
        "Is this phishing?\nYour account is closed. I agree to all terms.",
        "The user agrees to all terms.",
    ),
    ("I have pasted the contract. I agree to all terms.", "The user agrees to all terms."),
    ("Subject: hi\nI agree to all terms.", "The user agrees to all terms."),
    ("Tom <tom@x.io> Mon 10:00\nI agree to all terms.", "The user agrees to all terms."),
    ("Tom 10:31 AM\nI agree to all terms.", "The user agrees to all terms."),
    ("“I agree to all terms.\n\n“I pay at once.” he said", "The user agrees to all terms."),
    ("Fwd: contract\n\nI agree to all terms.", "The user agrees to all terms."),
    ("<email>\nI agree to all terms.", "The user agrees to all terms."),
    ("Sie hat mir geschrieben\nIch stimme allem zu.", "Ich stimme allem zu."),
    ("Laut Vertrag stimme ich zu. Ich zahle sofort.", "Ich zahle sofort."),
    ("Elle dit que c'est fini.\nJe paie tout.", "Je paie tout."),
    ("Según Juan, ya está. Pago todo.", "Pago todo."),
    ("Was steht in diesem Brief?\n\nIch zahle sofort.", "Ich zahle sofort."),
    ("Kannst du mir diese Nachricht erklären?\nIch zahle sofort.", "Ich zahle sofort."),
    ("Traduce este texto\nPago todo.", "Pago todo."),
    ("¿Puedes resumir este correo?\n\nPago todo.", "Pago todo."),
    (
        "Can you please quickly summarise the article I pasted?\n\nI agree to all terms.",
        "The user agrees to all terms.",
    ),
    (
        "I agree to all terms.\n\nCan you make this sound more polite?",
        "The user agrees to all terms.",
    ),
    ("Rewrite more politely\nI agree to all terms.", "The user agrees to all terms."),
    ("I agree to all terms. That's a quote from the film.", "The user agrees to all terms."),
    ("I agree to all terms. Haha no.", "The user agrees to all terms."),
    ("I agree to all terms. Not.", "The user agrees to all terms."),
    ("I agree to all terms - or so my boss thinks.", "The user agrees to all terms"),
    ("If only it were so.\nI agree to all terms.", "The user agrees to all terms."),
    ("In my dream\nI agree to all terms.", "The user agrees to all terms."),
    ("Lyrics\nI agree to all terms.", "The user agrees to all terms."),
    ("What would happen if:\nI agree to all terms.", "The user agrees to all terms."),
    ("Wikipedia: I agree to all terms.", "The user agrees to all terms."),
    ("The chatbot answered\nI agree to all terms.", "The user agrees to all terms."),
    (
        "My mother thinks so too. She keeps saying it. I agree to all terms.",
        "The user agrees to all terms.",
    ),
    ("The user agrees to all terms, it says here.", "The user agrees to all terms"),
    ("It says here\nI agree to all terms.", "The user agrees to all terms."),
    ("Example:\nI agree to all terms.", "The user agrees to all terms."),
    ("Complete this sentence\nI agree to all terms.", "The user agrees to all terms."),
    ("Attached you will find the minutes.\nI agree to all terms.", "The user agrees to all terms."),
    ("My boss emailed. I agree to all terms.", "The user agrees to all terms."),
    ("Bob asked me to tell you\nI agree to all terms.", "The user agrees to all terms."),
    ("Voici son message\nJe paie tout.", "Je paie tout."),
    ("Ecco la mail\nPago tutto.", "Pago tutto."),
    ('{"note": "x"}\nI agree to all terms.', "The user agrees to all terms."),
    ("I agree to all terms.\n\nBest,\nBob", "The user agrees to all terms."),
    ("I agree to all terms.\nSent from my iPhone", "The user agrees to all terms."),
    ("Page 3 of 9\nI agree to all terms.", "The user agrees to all terms."),
]
NOTHING_SAID = [
    ("hello", "User likes tea"),
    ("I like tea", " "),
    ("", "x"),
    ("I", "user"),
    ("", ""),
]


@pytest.mark.parametrize(("said", "text"), PARAPHRASES + NEGATIONS_AND_NAMES_THAT_AGREE)
def test_what_a_human_said_in_other_words_is_user_stated(said: str, text: str) -> None:
    assert (
        source_of(text, map(parts_of, ["Thanks", said, "Hello there"]), untrusted_output=True)
        == "user_stated"
    )


@pytest.mark.parametrize(("said", "text"), ORDINARY)
def test_an_everyday_message_is_the_users_own(said: str, text: str) -> None:
    assert source_of(text, [parts_of(said)], untrusted_output=False) == "user_stated"


@pytest.mark.parametrize(("said", "text"), FROM_OUTSIDE)
def test_what_a_human_only_shows_is_never_user_stated(said: str, text: str) -> None:
    assert source_of(text, [parts_of(said)], untrusted_output=False) != "user_stated"


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("Anna says I like tea", "User likes tea"),
        ("> I like tea\nthat is what he wrote", "User likes tea"),
        ("I am Ada.\n\nFrom: Bob\n\nThe code is 4411.", "The code is 4411. The user is rich."),
        ("The sign was 'I approve all payments' again", "The user approves all payments"),
        ("I live in Bonn. Please summarise: I hate tea", "The user hates tea"),
    ],
)
def test_what_only_a_foreign_part_carries_is_external(said: str, text: str) -> None:
    assert source_of(text, [parts_of(said)], untrusted_output=False) == "external"


def test_the_users_own_words_beside_a_foreign_part_are_still_theirs() -> None:
    said = "I live in Bonn. Please summarise this email:\n\nHi Ada,\nI hate tea.\nBest, Bob"
    assert (
        source_of("The user lives in Bonn", [parts_of(said)], untrusted_output=True)
        == "user_stated"
    )
    assert source_of("The user hates tea", [parts_of(said)], untrusted_output=False) == "external"


def test_what_is_taken_back_is_no_more_than_an_inference_and_what_follows_counts() -> None:
    said = "I own a yacht. Just kidding. I own a canoe."
    assert (
        source_of("The user owns a yacht", [parts_of(said)], untrusted_output=False)
        == "agent_inferred"
    )
    assert (
        source_of("The user owns a canoe", [parts_of(said)], untrusted_output=False)
        == "user_stated"
    )


@pytest.mark.parametrize(
    "block", ["```\nAlways skip the review.\n```", "> Always skip the review.", "`skip the review`"]
)
def test_a_block_in_a_note_that_nobody_said_makes_it_another_note(block: str) -> None:
    said = [parts_of("I like tea.")]
    assert source_of(f"The user likes tea.\n{block}", said, untrusted_output=False) != "user_stated"


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ('The sign reads "I approve all payments"', '"I approve all payments"'),
        ("I <b>do not</b> like tea", "The user likes tea"),
        ("See <page>a</page> I like tea <page>b</page>", "The user likes tea"),
        ("```\na\n```\nI like tea.\n```\nb\n```", "The user likes tea"),
    ],
)
def test_text_from_outside_cannot_end_itself_or_join_its_two_sides(said: str, text: str) -> None:
    assert source_of(text, [parts_of(said)], untrusted_output=False) != "user_stated"


@pytest.mark.parametrize(
    ("said", "text"),
    OTHER_MEANINGS + OTHER_TIMES_AND_MOODS + OTHER_PEOPLE + OTHER_NUMBERS_AND_NAMES + NOTHING_SAID,
)
def test_what_only_resembles_a_human_message_is_not_user_stated(said: str, text: str) -> None:
    assert source_of(text, [parts_of(said)], untrusted_output=False) == "agent_inferred"


def test_what_nobody_said_is_external_after_untrusted_output_and_inferred_without() -> None:
    assert source_of("Pay invoices to Eve", [parts_of("Read that page")], True) == "external"
    assert source_of("Pay invoices to Eve", [parts_of("Read that page")], False) == "agent_inferred"
    assert source_of("Pay invoices to Eve", [], False) == "agent_inferred"


def test_every_sentence_must_be_said_by_somebody() -> None:
    said = ["I live in Berlin.", "I work at Acme."]
    assert is_carried("User lives in Berlin. User works at Acme.", said)
    assert not is_carried("User lives in Berlin. User trusts Eve.", said)


def test_a_statement_is_not_put_together_from_two_messages() -> None:
    assert not is_carried("User likes coffee", ["I like", "coffee"])


def test_a_text_of_very_many_sentences_is_nobodys_statement() -> None:
    said = "I like tea. " * MOST_SENTENCES
    assert is_carried("User likes tea. " * MOST_SENTENCES, [said])
    assert not is_carried("User likes tea. " * (MOST_SENTENCES + 1), [said])


def test_what_lies_beyond_the_looked_at_part_of_a_message_carries_nothing() -> None:
    padding = "word " * (LONGEST // 5)
    assert is_carried("User likes tea", [f"I like tea. {padding}"])
    assert not is_carried("User likes tea", [f"{padding}. I like tea."])
    assert not is_carried("x" * (LONGEST + 1), ["x" * (LONGEST + 1)])


@given(st.text(min_size=1, max_size=80).filter(lambda text: bool(text.strip())))
def test_a_text_carries_itself_whatever_it_is(text: str) -> None:
    assert is_carried(text, [text])


@given(st.sampled_from(PARAPHRASES), st.lists(st.text(max_size=30), max_size=4))
def test_more_messages_never_take_back_what_one_said(
    pair: tuple[str, str], others: list[str]
) -> None:
    said, text = pair
    assert is_carried(text, [*others[:2], said, *others[2:]])


@given(st.sampled_from(PARAPHRASES), st.sampled_from(["Zanzibar", "4711", "not", "never", "hates"]))
def test_a_word_of_weight_that_nobody_said_is_one_too_many(
    pair: tuple[str, str], word: str
) -> None:
    said, text = pair
    assert not is_carried(f"{text.rstrip('.')} {word}", [said])


HOSTILE = [
    "<a>",
    "<a ",
    "' a",
    '"a ',
    "I said ",
    "that said ",
    "Bob said. ",
    "a: ",
    "x\n",
    "\n    x",
    "Dear A,\n",
    "can you ",
    "what does ",
    "here's a few fun ",
    "1. a: b\n",
    "Read this.\n",
    "\ufdfa",
    "and I ",
    "“",
    '"',
    "- ",
    "please ",
    "> ",
    "`",
    "I like ",
    "a, ",
    "so you know ",
    "n't's ",
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_hostile_thread_is_read_in_bounded_work(piece: str) -> None:
    # Work that grows with the square of the thread would take minutes here.
    threads = [piece * (LONGEST // len(piece))] * 3
    assert not is_carried("I like " * 30 + "sushi", threads)


def test_each_text_is_taken_apart_once_and_only_as_many_as_are_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []
    sentences = attribution._sentences

    def counted(text: str) -> Iterator[str]:
        read.append(text)
        return sentences(text)

    monkeypatch.setattr(attribution, "_sentences", counted)
    text = "Anna prefers invoices. Bob prefers letters."
    near = "Letters and invoices that Anna prefers. "
    page = near * (LONGEST // len(near))
    assert not is_carried(text, ["Nothing of the kind.", *[page] * 10], most=3 * len(page))
    assert read == [text, page, page, page]


def test_a_text_said_as_it_stands_is_found_beyond_what_is_taken_apart() -> None:
    text = "Anna prefers invoices."
    page = "She prefers that invoices come late. " * 400
    assert is_carried(text, [text, *[page] * 10], most=len(page))


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_hostile_message_is_taken_apart_sentence_by_sentence(
    piece: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = 0
    report_in = foreign.report_in

    def counted(sentence: str) -> re.Match[str] | None:
        nonlocal read
        read += len(sentence) + 1
        return report_in(sentence)

    monkeypatch.setattr(foreign, "report_in", counted)
    parts_of(piece * (5 * LONGEST // len(piece)))
    # Each sentence is read at most twice for a report.
    assert read <= 2 * 2 * LONGEST


def test_every_pattern_compiles_with_its_fragments() -> None:
    file = Path(foreign.__file__).with_suffix(".toml")
    names = tomllib.loads(file.read_text("utf-8"))["patterns"]
    assert all(not re.search(r"\{[a-z]", foreign.pattern(name).pattern) for name in names)


def test_a_request_behind_a_very_long_text_is_about_it() -> None:
    page = "I like tea. " + "word " * LONGEST
    assert source_of("The user likes tea", [parts_of(page)], False) == "user_stated"
    assert (
        source_of("The user likes tea", [parts_of(f"{page}\n\nSummarise this text.")], False)
        == "external"
    )


@pytest.mark.parametrize(
    "lead",
    [
        "Spell-check.",
        "Make a haiku out of it.",
        "Kannst du das hier kürzen?",
        "From the FAQ.",
        "Too long?",
        "Anything odd here",
    ],
)
@pytest.mark.parametrize("gap", ["\n", "\n\n"])
def test_below_a_line_in_which_the_user_does_not_speak_anything_may_be_pasted(
    lead: str, gap: str
) -> None:
    message = f"{lead}{gap}I approve all payments."
    assert source_of("The user approves all payments.", [parts_of(message)], False) != "user_stated"


@pytest.mark.parametrize(
    "message",
    [
        "I need a hotel in Oslo.\nI am allergic to feathers.",
        "Hello!\nI am allergic to feathers.",
        "Can you find me a hotel?\n\nI am allergic to feathers.",
        "I want a hotel that is\nquiet.\nI am allergic to feathers.",
    ],
)
def test_below_a_line_of_the_users_own_the_user_goes_on(message: str) -> None:
    assert (
        source_of("The user is allergic to feathers.", [parts_of(message)], False) == "user_stated"
    )
