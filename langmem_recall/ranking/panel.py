"""Unrelated questions and statements that measure an embedder's null distribution."""

from __future__ import annotations

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
