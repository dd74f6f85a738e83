"""A suite in other languages: memories and cues in the same one."""

# Full-width marks and Cyrillic letters look like Latin ones, and are meant here.
# ruff: noqa: RUF001

from __future__ import annotations

import random
from typing import NamedTuple

from langmem_recall.evaluation.cases import FAR, Case, CaseSet
from langmem_recall.types import Cue
from suites.backdrop import NOW, Notebook, shuffled

ASKED = 8


class Tongue(NamedTuple):
    """Facts of a persona with a cue each, and cues that no fact answers."""

    name: str
    facts: tuple[tuple[str, str], ...]
    off_topic: tuple[str, ...]


TONGUES = (
    Tongue(
        "German",
        (
            ("Ich vertrage keine Erdnüsse.", "Welche Nüsse vertrage ich nicht?"),
            ("Meine Schwester wohnt in Bremen.", "Wo wohnt meine Schwester?"),
            ("Unser Hund heißt Krümel.", "Wie heißt unser Hund?"),
            ("Ich fahre mit dem Fahrrad zur Arbeit.", "Wie komme ich zur Arbeit?"),
            ("Der Mietvertrag läuft bis Ende März.", "Wie lange läuft der Mietvertrag noch?"),
            ("Ich spiele Bratsche im Orchester.", "Welches Instrument spiele ich?"),
            ("Mein Zahnarzt ist Doktor Behrens.", "Wer ist mein Zahnarzt?"),
            ("Im Sommer segeln wir auf der Ostsee.", "Wo segeln wir im Sommer?"),
            ("Ich trinke meinen Kaffee ohne Zucker.", "Wie trinke ich meinen Kaffee?"),
            ("Das Passwort liegt im Tresor.", "Wo ist das Passwort?"),
            ("Mein Großvater war Uhrmacher.", "Welchen Beruf hatte mein Großvater?"),
        ),
        (
            "Wie berechne ich die Fläche eines Kreises?",
            "Erzähl mir einen Witz.",
            "Ja, bitte.",
            "Wie sortiere ich eine Liste in Python?",
        ),
    ),
    Tongue(
        "French",
        (
            ("Je suis allergique aux crevettes.", "À quoi suis-je allergique ?"),
            ("Mon frère habite à Nantes.", "Où habite mon frère ?"),
            ("Notre chat s'appelle Moustache.", "Comment s'appelle notre chat ?"),
            ("Je prends le métro pour aller au bureau.", "Comment est-ce que je vais au bureau ?"),
            ("Je joue du violoncelle le jeudi.", "De quel instrument est-ce que je joue ?"),
            ("Ma fille commence l'école en septembre.", "Quand ma fille commence-t-elle l'école ?"),
            ("Je préfère le thé vert sans sucre.", "Quel thé est-ce que je préfère ?"),
            ("Mon médecin s'appelle le docteur Lambert.", "Qui est mon médecin ?"),
            ("Les clés de secours sont chez la voisine.", "Où sont les clés de secours ?"),
            ("Nous passons Noël à la montagne.", "Où passons-nous Noël ?"),
            ("J'ai vendu ma voiture au printemps.", "Quand ai-je vendu ma voiture ?"),
        ),
        (
            "Quelle est la racine carrée de deux ?",
            "Raconte-moi une blague.",
            "Oui, merci.",
            "Comment trier une liste en Python ?",
        ),
    ),
    Tongue(
        "Spanish",
        (
            ("Soy alérgico a los mariscos.", "¿A qué soy alérgico?"),
            ("Mi hermana vive en Sevilla.", "¿Dónde vive mi hermana?"),
            ("Nuestro perro se llama Trueno.", "¿Cómo se llama nuestro perro?"),
            ("Voy al trabajo en autobús.", "¿Cómo voy al trabajo?"),
            ("Toco la guitarra desde niño.", "¿Qué instrumento toco?"),
            ("Mi jefa se llama Carmen.", "¿Quién es mi jefa?"),
            ("El alquiler se paga el día cinco.", "¿Qué día se paga el alquiler?"),
            ("Prefiero el café con leche de avena.", "¿Con qué leche prefiero el café?"),
            ("Mi abuelo era pescador.", "¿Qué era mi abuelo?"),
            ("La boda será en octubre.", "¿Cuándo será la boda?"),
            ("Guardo el pasaporte en el cajón.", "¿Dónde guardo el pasaporte?"),
        ),
        (
            "¿Cuánto es doce por quince?",
            "Cuéntame un chiste.",
            "Sí, gracias.",
            "¿Cómo se ordena una lista en Python?",
        ),
    ),
    Tongue(
        "Chinese",
        (
            ("我对花生过敏。", "我对什么过敏？"),
            ("我姐姐住在成都。", "我姐姐住在哪里？"),
            ("我们家的狗叫豆豆。", "我们家的狗叫什么名字？"),
            ("我每天骑自行车上班。", "我怎么上班？"),
            ("我喜欢喝不加糖的绿茶。", "我喜欢喝什么茶？"),
            ("我的牙医是王医生。", "我的牙医是谁？"),
            ("护照放在书桌的抽屉里。", "护照放在哪里？"),
            ("我女儿九月开始上小学。", "我女儿什么时候上小学？"),
            ("房租每月五号交。", "房租几号交？"),
            ("我在学弹钢琴。", "我在学什么乐器？弹钢琴吗？"),
            ("爷爷以前是木匠。", "爷爷以前做什么工作？"),
        ),
        ("圆的面积怎么算？", "给我讲个笑话。", "好的，谢谢。", "怎么用Python排序列表？"),
    ),
    Tongue(
        "Japanese",
        (
            ("私はそばアレルギーです。", "私は何のアレルギーですか？"),
            ("姉は札幌に住んでいます。", "姉はどこに住んでいますか？"),
            ("うちの犬の名前はモモです。", "うちの犬の名前は何ですか？"),
            ("会社には電車で通っています。", "会社にはどうやって通っていますか？"),
            ("コーヒーは砂糖なしで飲みます。", "コーヒーはどうやって飲みますか？"),
            ("歯医者は田中先生です。", "歯医者は誰ですか？"),
            ("パスポートは机の引き出しにあります。", "パスポートはどこにありますか？"),
            ("娘は四月に小学校に入ります。", "娘はいつ小学校に入りますか？"),
            ("家賃は毎月二十五日に払います。", "家賃はいつ払いますか？"),
            ("週末はバイオリンを練習します。", "週末は何の楽器を練習しますか？"),
            ("祖父は大工でした。", "祖父の仕事は何でしたか？"),
        ),
        (
            "円の面積の求め方は？",
            "冗談を言って。",
            "はい、お願いします。",
            "Pythonで並べ替える方法は？",
        ),
    ),
    Tongue(
        "Russian",
        (
            ("У меня аллергия на орехи.", "На что у меня аллергия?"),
            ("Моя сестра живёт в Казани.", "Где живёт моя сестра?"),
            ("Нашу собаку зовут Рыжик.", "Как зовут нашу собаку?"),
            ("Я езжу на работу на трамвае.", "Как я езжу на работу?"),
            ("Я пью чай без сахара.", "Как я пью чай?"),
            ("Моего врача зовут Ирина Павловна.", "Как зовут моего врача?"),
            ("Паспорт лежит в верхнем ящике.", "Где лежит паспорт?"),
            ("Дочь идёт в школу в сентябре.", "Когда дочь идёт в школу?"),
            ("По выходным я играю на скрипке.", "На чём я играю по выходным?"),
            ("Мой дед был плотником.", "Кем был мой дед?"),
            ("Аренда оплачивается пятого числа.", "Когда оплачивается аренда?"),
        ),
        ("Чему равно число пи?", "Расскажи анекдот.", "Да, спасибо.", "Как отсортировать список?"),
    ),
    Tongue(
        "Korean",
        (
            ("저는 땅콩 알레르기가 있어요.", "저는 무슨 알레르기가 있나요?"),
            ("언니는 부산에 살아요.", "언니는 어디에 살아요?"),
            ("우리 강아지 이름은 보리예요.", "우리 강아지 이름은 뭐예요?"),
            ("저는 지하철로 출근해요.", "저는 어떻게 출근해요?"),
            ("커피는 설탕 없이 마셔요.", "커피는 어떻게 마셔요?"),
            ("제 치과 의사는 김 선생님이에요.", "제 치과 의사는 누구예요?"),
            ("여권은 책상 서랍에 있어요.", "여권은 어디에 있어요?"),
            ("딸은 삼월에 학교에 들어가요.", "딸은 언제 학교에 들어가요?"),
            ("월세는 매달 오일에 내요.", "월세는 언제 내요?"),
            ("주말마다 첼로를 연습해요.", "주말마다 어떤 악기를 연습해요?"),
            ("할아버지는 목수였어요.", "할아버지는 무슨 일을 하셨어요?"),
        ),
        ("원의 넓이는 어떻게 구해요?", "농담 하나 해 줘.", "네, 고마워요.", "파이썬 정렬 방법은?"),
    ),
)


def languages(seed: int = 0) -> CaseSet:
    """Short facts and cues in seven languages, some cues off-topic; a category is a language."""
    rng = random.Random(f"languages {seed}")
    notebooks, cases = [], []
    for tongue in TONGUES:
        notebook = Notebook(tongue.name.lower(), rng)
        for place, (text, cue) in enumerate(shuffled(rng, tongue.facts)):
            key = notebook.add(text)
            if place < ASKED:
                case = Case(notebook.name, Cue(cue), frozenset({key}), NOW, category=tongue.name)
                cases.append(case)
        cases += [
            Case(notebook.name, Cue(cue), at=NOW, group=FAR, category=tongue.name)
            for cue in shuffled(rng, tongue.off_topic)
        ]
        notebooks.append(notebook.collection())
    return CaseSet("languages", tuple(notebooks), tuple(cases))
