"""Unrelated questions and statements that measure an embedder's null distribution."""

from __future__ import annotations

from collections.abc import Mapping

PANEL: tuple[tuple[str, str], ...] = (
    ("Which bread does the bakery sell out of first?", "The sourdough is gone by nine every day."),
    (
        "What made the server run out of memory?",
        "A cache without a limit filled the heap overnight.",
    ),
    ("How did the marathon training go?", "I managed thirty kilometres before my knee hurt."),
    ("Which seat do you prefer on a plane?", "I always book the aisle near the front."),
    ("Who will water the plants in August?", "Our neighbour has the key to the greenhouse."),
    (
        "What is the rent of the new flat?",
        "The landlord wants twelve hundred a month plus heating.",
    ),
    ("Why was the invoice sent back?", "The purchase order number was missing from the header."),
    ("What does the cat eat now?", "She only accepts the salmon tins since spring."),
    ("Which instrument is she learning?", "He bought her a second-hand cello for lessons."),
    ("When does the museum close?", "The gallery lets nobody in after half past five."),
    ("How do I reset the thermostat?", "Hold both arrows until the display blinks twice."),
    ("What did the doctor say about the rash?", "It was an allergy to the new washing powder."),
    ("Which database do we deploy to?", "Production runs on a managed cluster in Frankfurt."),
    ("What happened in the final chapter?", "The detective admits that he forged the letter."),
    (
        "Where did they spend the honeymoon?",
        "Two weeks of rain on a Scottish island, all happy.",
    ),
    ("Who designed the company logo?", "A student drew it for a plate of noodles."),
    ("How much sugar goes into the jam?", "Half the weight of the plums is plenty."),
    ("Which lens is best for portraits?", "An eighty-five millimetre prime flatters faces."),
    ("What is the dog afraid of?", "Fireworks send him under the bed for hours."),
    (
        "Why did the football match end early?",
        "Lightning struck near the stadium and all went home.",
    ),
    ("Which tests are flaky?", "The login suite fails whenever the clock crosses midnight."),
    ("What colour should the kitchen be?", "Pale green tiles would suit the oak cupboards."),
    ("Who is responsible for the budget?", "Finance moved the approval to the regional manager."),
    ("How old is the church tower?", "Masons finished the spire in the fourteenth century."),
    ("What language do her parents speak?", "At home they talk in a mountain dialect of Catalan."),
    ("Which fish live in the lake?", "Anglers mostly pull perch and the odd pike from it."),
    ("When is the tax return due?", "The deadline for filing moved to the end of July."),
    ("How was the physics exam?", "The question on pendulums cost me ten marks."),
    (
        "What keeps the bicycle from shifting?",
        "The rear cable is rusted where it enters the frame.",
    ),
    ("Who won the chess tournament?", "A twelve-year-old beat the favourite in nineteen moves."),
    ("What should I wear to the wedding?", "The invitation asks for linen and no black."),
    ("Where are the backups stored?", "Every night a copy goes to a vault in another city."),
)
"""Pair i shares a topic, two different pairs do not; 32 pairs steady the mean and the spread."""

_GERMAN = (
    (
        "Welches Brot ist in der Bäckerei zuerst weg?",
        "Das Sauerteigbrot ist jeden Tag um neun ausverkauft.",
    ),
    (
        "Warum ging dem Server der Speicher aus?",
        "Ein Cache ohne Grenze hat über Nacht alles gefüllt.",
    ),
    ("Wie lief das Training für den Marathon?", "Nach dreißig Kilometern tat mir das Knie weh."),
    ("Wer gießt im August die Pflanzen?", "Unser Nachbar hat den Schlüssel zum Gewächshaus."),
    (
        "Wie hoch ist die Miete der neuen Wohnung?",
        "Der Vermieter will zwölfhundert im Monat plus Heizung.",
    ),
    ("Was frisst die Katze jetzt?", "Seit dem Frühling nimmt sie nur noch Lachs aus der Dose."),
    ("Welches Instrument lernt sie?", "Er hat ihr ein gebrauchtes Cello gekauft."),
    ("Wann schließt das Museum?", "Nach halb sechs lässt die Galerie niemanden mehr hinein."),
    ("Was sagte der Arzt zum Ausschlag?", "Es war eine Allergie gegen das neue Waschpulver."),
    (
        "Wer hat das Logo der Firma entworfen?",
        "Eine Studentin zeichnete es für einen Teller Nudeln.",
    ),
    (
        "Welche Fische leben im See?",
        "Angler ziehen meist Barsche und ab und zu einen Hecht heraus.",
    ),
    (
        "Wo liegen die Sicherungskopien?",
        "Jede Nacht geht eine Kopie in einen Tresor in einer anderen Stadt.",
    ),
)
_FRENCH = (
    (
        "Quel pain part en premier à la boulangerie ?",
        "Le pain au levain est épuisé tous les jours à neuf heures.",
    ),
    (
        "Pourquoi le serveur a-t-il manqué de mémoire ?",
        "Un cache sans limite a tout rempli pendant la nuit.",
    ),
    (
        "Comment s'est passé l'entraînement du marathon ?",
        "Après trente kilomètres j'avais mal au genou.",
    ),
    ("Qui arrose les plantes en août ?", "Notre voisin a la clé de la serre."),
    (
        "Quel est le loyer du nouvel appartement ?",
        "Le propriétaire veut douze cents par mois plus le chauffage.",
    ),
    (
        "Que mange le chat maintenant ?",
        "Depuis le printemps elle n'accepte que les boîtes de saumon.",
    ),
    ("Quel instrument apprend-elle ?", "Il lui a acheté un violoncelle d'occasion."),
    (
        "À quelle heure ferme le musée ?",
        "La galerie ne laisse plus entrer personne après dix-sept heures trente.",
    ),
    ("Qu'a dit le médecin de la rougeur ?", "C'était une allergie à la nouvelle lessive."),
    (
        "Qui a dessiné le logo de l'entreprise ?",
        "Une étudiante l'a dessiné pour une assiette de nouilles.",
    ),
    (
        "Quels poissons vivent dans le lac ?",
        "Les pêcheurs sortent surtout des perches et parfois un brochet.",
    ),
    ("Où sont les sauvegardes ?", "Chaque nuit une copie part dans un coffre d'une autre ville."),
)
_SPANISH = (
    (
        "¿Qué pan se acaba primero en la panadería?",
        "El pan de masa madre se agota cada día a las nueve.",
    ),
    (
        "¿Por qué se quedó sin memoria el servidor?",
        "Una caché sin límite lo llenó todo durante la noche.",
    ),
    (
        "¿Cómo fue el entrenamiento del maratón?",
        "Después de treinta kilómetros me dolía la rodilla.",
    ),
    ("¿Quién riega las plantas en agosto?", "Nuestro vecino tiene la llave del invernadero."),
    (
        "¿Cuánto es el alquiler del piso nuevo?",
        "El casero pide mil doscientos al mes más calefacción.",
    ),
    ("¿Qué come ahora la gata?", "Desde la primavera solo acepta latas de salmón."),
    ("¿Qué instrumento está aprendiendo?", "Él le compró un violonchelo de segunda mano."),
    (
        "¿A qué hora cierra el museo?",
        "La galería no deja entrar a nadie después de las cinco y media.",
    ),
    ("¿Qué dijo el médico del sarpullido?", "Era una alergia al detergente nuevo."),
    (
        "¿Quién diseñó el logotipo de la empresa?",
        "Una estudiante lo dibujó por un plato de fideos.",
    ),
    ("¿Qué peces viven en el lago?", "Los pescadores sacan sobre todo percas y algún lucio."),
    (
        "¿Dónde se guardan las copias de seguridad?",
        "Cada noche una copia va a una bóveda de otra ciudad.",
    ),
)
_RUSSIAN = (
    ("Какой хлеб в пекарне заканчивается первым?", "Закваску раскупают каждый день к девяти утра."),
    ("Почему на сервере закончилась память?", "Кэш без ограничения за ночь заполнил всё."),
    ("Как прошла подготовка к марафону?", "После тридцати километров заболело колено."),
    ("Кто поливает цветы в августе?", "У соседа есть ключ от теплицы."),
    ("Какая аренда у новой квартиры?", "Хозяин хочет тысячу двести в месяц плюс отопление."),
    ("Что теперь ест кошка?", "С весны она признаёт только консервы из лосося."),
    ("На каком инструменте она учится играть?", "Он купил ей подержанную виолончель."),
    ("Во сколько закрывается музей?", "После половины шестого в галерею никого не пускают."),
    ("Что сказал врач о сыпи?", "Это была аллергия на новый стиральный порошок."),
    ("Кто нарисовал логотип фирмы?", "Студентка нарисовала его за тарелку лапши."),
    ("Какая рыба водится в озере?", "Рыбаки чаще ловят окуня и иногда щуку."),
    ("Где хранятся резервные копии?", "Каждую ночь копия уходит в хранилище в другом городе."),
)
_CHINESE = (
    ("面包店里哪种面包最先卖完？", "酸面包每天早上九点就没有了。"),
    ("服务器为什么内存不足？", "一个没有上限的缓存一夜之间占满了空间。"),
    ("马拉松训练得怎么样？", "跑了三十公里以后膝盖就疼了。"),
    ("八月份谁来浇花？", "邻居有温室的钥匙。"),
    ("新公寓的房租是多少？", "房东每月要一千二，暖气另算。"),
    ("猫现在吃什么？", "从春天起它只吃三文鱼罐头。"),
    ("她在学什么乐器？", "他给她买了一把二手大提琴。"),
    ("博物馆几点关门？", "五点半以后画廊就不让人进了。"),
    ("医生怎么说皮疹？", "原来是对新洗衣粉过敏。"),
    ("公司的标志是谁设计的？", "一个学生为了一碗面画的。"),
    ("湖里有哪些鱼？", "钓鱼的人多半钓到鲈鱼，偶尔有狗鱼。"),
    ("备份存在哪里？", "每天晚上有一份拷贝送到另一座城市。"),
)
_JAPANESE = (
    ("パン屋で最初に売り切れるパンはどれですか。", "サワードウは毎朝九時にはなくなります。"),
    (
        "サーバーのメモリはなぜ足りなくなったのですか。",
        "上限のないキャッシュが一晩で埋め尽くしました。",
    ),
    ("マラソンの練習はどうでしたか。", "三十キロ走ったら膝が痛くなりました。"),
    ("八月は誰が植物に水をやりますか。", "隣の人が温室の鍵を持っています。"),
    ("新しい部屋の家賃はいくらですか。", "大家さんは月に十二万と暖房代を求めています。"),
    ("猫は今何を食べていますか。", "春からは鮭の缶詰しか食べません。"),
    ("彼女は何の楽器を習っていますか。", "彼は中古のチェロを買ってあげました。"),
    ("美術館は何時に閉まりますか。", "五時半を過ぎると誰も入れてもらえません。"),
    ("医者は発疹について何と言いましたか。", "新しい洗剤のアレルギーでした。"),
    ("会社のロゴは誰がデザインしましたか。", "学生がラーメン一杯で描きました。"),
    ("湖にはどんな魚がいますか。", "釣り人はたいていスズキを釣ります。"),
    ("バックアップはどこに保存されていますか。", "毎晩コピーが別の町の金庫に送られます。"),
)
_KOREAN = (
    ("빵집에서 어떤 빵이 가장 먼저 떨어지나요?", "사워도우는 매일 아침 아홉 시면 없습니다."),
    ("서버 메모리가 왜 부족해졌나요?", "제한 없는 캐시가 밤사이 모두 채웠습니다."),
    ("마라톤 훈련은 어땠나요?", "삼십 킬로미터를 뛰고 나니 무릎이 아팠습니다."),
    ("팔월에는 누가 화분에 물을 주나요?", "이웃이 온실 열쇠를 가지고 있습니다."),
    ("새 아파트 월세는 얼마인가요?", "집주인은 한 달에 백이십만 원과 난방비를 원합니다."),
    ("고양이는 지금 무엇을 먹나요?", "봄부터는 연어 통조림만 먹습니다."),
    ("그녀는 어떤 악기를 배우나요?", "그가 중고 첼로를 사 주었습니다."),
    ("박물관은 몇 시에 닫나요?", "다섯 시 반이 지나면 아무도 들어갈 수 없습니다."),
    ("의사가 발진에 대해 뭐라고 했나요?", "새 세제에 대한 알레르기였습니다."),
    ("회사 로고는 누가 디자인했나요?", "학생이 국수 한 그릇에 그려 주었습니다."),
    ("호수에는 어떤 물고기가 사나요?", "낚시꾼들은 주로 농어를 잡습니다."),
    ("백업은 어디에 저장되나요?", "매일 밤 사본이 다른 도시의 금고로 갑니다."),
)

PANELS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "en": PANEL,
    "de": _GERMAN,
    "fr": _FRENCH,
    "es": _SPANISH,
    "ru": _RUSSIAN,
    "zh": _CHINESE,
    "ja": _JAPANESE,
    "ko": _KOREAN,
}
"""By language: many embedders find any two texts of a language they hardly know alike."""
