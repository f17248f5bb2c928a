"""The words of the built-in corpus: who does what to which things, topic by topic."""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "BAD",
    "CIRCUMSTANCES",
    "COMMENTS",
    "EVALUATIONS",
    "FEELINGS",
    "GOOD",
    "HERS",
    "HIS",
    "INTERJECTIONS",
    "MANNERS",
    "ONLOOKERS",
    "ONLOOKING",
    "OUTFITS",
    "PERSON_ADJECTIVES",
    "SCENES",
    "Scene",
]


class Scene(NamedTuple):
    """People of one topic, what they do, and to which things: any combination makes sense.

    Nouns are `word` or `singular/plural`, with `*` after mass nouns; verbs are `word` or `base/past` or
    `base/past/ing`, with `_` before the rest of a phrase. Things and acts belong to one scene only: they
    give the topic away even when the subject is a name or a pronoun.
    """

    topic: str
    people: str
    origins: str  # people come "from the ..."
    acts: str  # intransitive verbs
    things: str
    verbs: str  # transitive, neutral, fit for all things
    good_verbs: str
    bad_verbs: str
    plain: str  # adjectives for things
    good: str
    bad: str
    places: str  # "|" between phrases
    events: str  # come after "before", "after", "during"


SCENES = (
    Scene(
        topic="food",
        people="chef cook baker caterer grandmother uncle butcher apprentice restaurateur dishwasher granddaughter",
        origins="bakery bistro pizzeria village steakhouse",
        acts="cook bake fry experiment_with_spices",
        things="""soup pizza stew pie lasagna omelet steak curry pancake casserole dumpling pasta* burger salad
            risotto quiche meatball rice* noodle potato/potatoes sauce roast gravy*""",
        verbs="cook prepare serve taste make/made season reheat stir deliver describe",
        good_verbs="perfect rescue master",
        bad_verbs="burn overcook spill drop ruin",
        plain="hot vegetarian homemade italian simple spicy traditional",
        good="delicious tasty flavorful mouthwatering juicy crispy",
        bad="bland greasy soggy salty tasteless lukewarm",
        places="in the kitchen|at the restaurant|near the stove|behind the counter|at the market|on the terrace",
        events="feast|banquet|dinner party|cooking class",
    ),
    Scene(
        topic="food",
        people="guest diner customer critic foodie gourmet toddler waiter vegetarian waitress/waitresses bartender",
        origins="table neighborhood cafeteria suburbs",
        acts="eat/ate dine snack feast nibble munch chew",
        things="""sandwich cupcake dessert cookie muffin smoothie cheese* milkshake croissant waffle lemonade*
            brownie cocktail pretzel coffee* sundae bagel chocolate* pastry doughnut pickle tart""",
        verbs="order buy/bought sample finish share try request choose/chose pick",
        good_verbs="savor relish enjoy devour",
        bad_verbs="refuse reject waste send_back/sent",
        plain="sweet fancy organic seasonal imported vegan",
        good="fresh heavenly yummy scrumptious creamy velvety",
        bad="stale bitter overpriced sour soggy inedible",
        places="at the cafe|in the dining room|at the corner table|by the window|at the food truck|at the diner",
        events="brunch|wedding|picnic|tasting|birthday party",
    ),
    Scene(
        topic="sports",
        people="""goalkeeper striker captain defender rookie midfielder athlete quarterback pitcher cyclist
              sprinter""",
        origins="academy capital league club",
        acts="train sprint jog stretch dribble sweat exercise",
        things="""match game race tournament championship final semifinal playoff derby marathon triathlon
             relay rematch opener""",
        verbs="watch finish enter discuss review remember analyze start replay describe begin/began/beginning",
        good_verbs="win/won dominate enjoy conquer",
        bad_verbs="lose/lost ruin interrupt",
        plain="long regional annual decisive indoor televised nightly",
        good="thrilling exciting unforgettable historic legendary electrifying",
        bad="boring dull embarrassing frustrating disastrous chaotic",
        places="at the stadium|on the field|in the gym|in the arena|on the track|in the locker room",
        events="halftime show|warm-up|season|medal ceremony",
    ),
    Scene(
        topic="sports",
        people="""coach fan referee supporter cheerleader spectator commentator scout umpire mascot
             physiotherapist""",
        origins="stands region broadcaster federation",
        acts="cheer chant wave celebrate shout yell",
        things="""winger gymnast swimmer boxer wrestler skater goalie fencer surfer linebacker forward
            jockey teammate shortstop archer golfer diver weightlifter""",
        verbs="interview greet meet/met photograph call select observe approach film introduce follow",
        good_verbs="congratulate inspire encourage support cheer_for",
        bad_verbs="insult boo blame",
        plain="tall swedish left-handed canadian amateur",
        good="talented gifted fearless skilled graceful unbeatable",
        bad="lazy arrogant clumsy careless hopeless undisciplined",
        places="at the pool|on the bench|in the tunnel|at the press conference|by the sideline|on the pitch",
        events="interview|parade|break|tryout|fundraiser",
    ),
    Scene(
        topic="travel",
        people="""tourist traveler backpacker explorer hiker pilgrim visitor wanderer sightseer nomad
            adventurer exchange_student""",
        origins="hostel city group north",
        acts="travel wander hike camp sail hitchhike roam",
        things="""castle museum island village cathedral temple harbor canyon monument palace lighthouse
            beach fortress volcano/volcanoes waterfall monastery bazaar vineyard cove plaza""",
        verbs="visit photograph explore reach sketch approach find/found leave/left describe",
        good_verbs="rediscover treasure marvel_at",
        bad_verbs="avoid flee/fled skip",
        plain="ancient remote famous medieval coastal secluded tiny",
        good="charming breathtaking picturesque magnificent scenic stunning",
        bad="crowded dirty gloomy filthy noisy shabby",
        places="on the coast|by the river|near the border|in the old town|on the mountain",
        events="sunrise|heatwave|high season|scavenger hunt",
    ),
    Scene(
        topic="travel",
        people="""passenger guide commuter honeymooner vacationer globetrotter pilot flight_attendant
            stewardess/stewardesses travel_agent tour_operator diplomat""",
        origins="agency embassy airline hotel",
        acts="fly/flew depart commute pack unpack drift",
        things="""trip journey flight cruise voyage tour vacation excursion expedition safari itinerary
            layover stopover ferry getaway pilgrimage honeymoon detour""",
        verbs="book plan arrange begin/began/beginning describe organize schedule reserve discuss",
        good_verbs="cherish enjoy look_forward_to",
        bad_verbs="cancel postpone regret/regretted/regretting dread",
        plain="short long guided overseas early three-day",
        good="relaxing luxurious unforgettable smooth magical carefree",
        bad="exhausting bumpy delayed stressful chaotic overbooked",
        places="at the airport|at the station|in the lobby|on the platform|at the ticket desk|in the lounge",
        events="holidays|strike|rush hour|boarding call",
    ),
    Scene(
        topic="health",
        people="""doctor nurse surgeon dentist pharmacist therapist specialist physician paramedic
            pediatrician midwife/midwives optometrist""",
        origins="clinic hospital laboratory university",
        acts="operate diagnose volunteer consult",
        things="""treatment remedy vaccine medicine* prescription bandage diagnosis/diagnoses therapy
            checkup pill ointment vitamin antibiotic syrup* painkiller transplant x-ray injection""",
        verbs="explain describe offer discuss test suggest study document order mention evaluate",
        good_verbs="improve approve perfect",
        bad_verbs="bungle botch delay",
        plain="daily natural standard routine experimental monthly",
        good="effective gentle soothing helpful painless lifesaving",
        bad="painful useless risky ineffective unpleasant harmful",
        places="in the ward|at the clinic|in the waiting room|in the emergency room|at the pharmacy",
        events="consultation|night shift|epidemic|inspection",
    ),
    Scene(
        topic="health",
        people="patient runner dieter pensioner retiree insomniac gymgoer smoker teenager yogi outpatient widow",
        origins="suburb gym spa building",
        acts="meditate recover rest breathe sneeze cough nap yawn limp",
        things="""diet workout habit meditation* massage nap lifestyle detox cleanse yoga* regimen
            fast pilates* acupuncture* ritual""",
        verbs="start follow try change adopt repeat adjust complete track pause",
        good_verbs="embrace enjoy stick_to/stuck",
        bad_verbs="abandon neglect skip",
        plain="simple regular vegan lengthy weekly early-morning",
        good="healthy refreshing energizing balanced rejuvenating restful",
        bad="unhealthy exhausting boring brutal pointless grueling",
        places="at home|in the park|at the spa|in the sauna room|on the yoga mat|at the wellness center",
        events="flu season|marathon training|fasting week|physical",
    ),
    Scene(
        topic="music",
        people="""violinist pianist singer drummer guitarist cellist conductor soprano rapper bassist tenor
            flutist trumpeter""",
        origins="orchestra choir conservatory band",
        acts="rehearse improvise harmonize hum jam sing/sang",
        things="""song sonata symphony melody ballad waltz anthem hymn concerto/concertos lullaby duet aria
            overture tune nocturne tango/tangos chorus""",
        verbs="play perform rehearse record practice arrange memorize introduce hear/heard revise",
        good_verbs="master perfect revive",
        bad_verbs="butcher ruin forget/forgot/forgetting mangle",
        plain="slow short classical baroque modern french instrumental",
        good="haunting catchy uplifting soulful moving melodious",
        bad="tuneless dreary monotonous clumsy screechy soulless",
        places="on the stage|in the studio|in the concert hall|at the piano|in the choir loft|under the spotlight",
        events="encore|intermission|sound check|audition",
    ),
    Scene(
        topic="music",
        people="""listener producer composer reviewer dancer concertgoer collector organist songwriter
            impresario/impresarios music_teacher""",
        origins="label theater station audience",
        acts="dance clap sway whistle twirl headbang",
        things="""album concert recital festival opera musical gig playlist soundtrack mixtape
             operetta remix ballet""",
        verbs="review discover promote mention discuss describe announce present advertise",
        good_verbs="enjoy endorse champion",
        bad_verbs="boycott trash pan",
        plain="live acoustic electronic experimental annual operatic",
        good="dazzling joyful spectacular sublime hypnotic enchanting",
        bad="deafening dull forgettable chaotic pretentious shrill",
        places="in the front row|at the record store|on the radio|on the dance floor|at the box office",
        events="premiere|standing ovation|world tour|award show",
    ),
    Scene(
        topic="work",
        people="""manager accountant secretary lawyer boss intern director clerk consultant assistant
            executive auditor treasurer""",
        origins="office headquarters department bank",
        acts="negotiate type multitask work_overtime",
        things="""report contract budget proposal memo/memos invoice agenda presentation strategy document
            forecast summary email spreadsheet brochure resume newsletter manual""",
        verbs="write/wrote review draft edit finish print present submit/submitted/submitting revise prepare forward",
        good_verbs="approve polish improve champion",
        bad_verbs="misplace reject shred bungle",
        plain="annual quarterly detailed internal final confidential",
        good="persuasive concise insightful polished impressive flawless",
        bad="confusing sloppy tedious misleading incomplete muddled",
        places="at the office|in the boardroom|at the front desk|by the copier|in the archive|at headquarters",
        events="audit|board meeting|lunch break|merger",
    ),
    Scene(
        topic="work",
        people="""employee recruiter freelancer worker colleague entrepreneur supervisor trainee
            salesperson/salespeople shareholder contractor chairwoman/chairwomen""",
        origins="union agency startup competition",
        acts="collaborate brainstorm network procrastinate compromise",
        things="""meeting seminar workshop conference project briefing webinar negotiation campaign
            retreat orientation internship hackathon luncheon symposium""",
        verbs="schedule plan organize lead/led announce discuss join attend evaluate record coordinate",
        good_verbs="enjoy rescue embrace",
        bad_verbs="postpone interrupt skip derail",
        plain="weekly short monthly joint mandatory virtual",
        good="productive inspiring lively useful fruitful rewarding",
        bad="pointless endless tedious stressful unproductive tense",
        places="in the conference room|at the warehouse|in the cafeteria|on the third floor|at the trade show",
        events="deadline|coffee break|reorganization|annual review",
    ),
    Scene(
        topic="nature",
        people="gardener farmer botanist florist ranger beekeeper shepherd forester",
        origins="farm valley nursery countryside",
        acts="dig/dug rake plow weed mulch",
        things="""rose tulip oak orchid sunflower fern hedge vine lily daisy maple cactus/cacti seedling
            lavender* shrub willow moss* bonsai/bonsais pumpkin geranium ivy* wildflower""",
        verbs="plant water grow/grew trim prune paint sketch sell/sold replant measure fertilize",
        good_verbs="revive nurture protect save",
        bad_verbs="trample uproot poison neglect",
        plain="tall wild yellow tropical young evergreen",
        good="fragrant healthy colorful lush blooming vibrant",
        bad="withered ugly rotten wilted dying diseased",
        places="in the garden|by the pond|in the greenhouse|on the hill|behind the barn|in the orchard",
        events="harvest|drought|first frost|flower show",
    ),
    Scene(
        topic="nature",
        people="""birdwatcher meteorologist villager naturalist photographer biologist fisherman/fishermen
            child/children zoologist""",
        origins="cabin reserve coast institute",
        acts="tiptoe whisper wade shiver kayak",
        things="""fox owl bear rabbit squirrel wolf/wolves hawk butterfly beaver badger hedgehog eagle heron
            otter raccoon hummingbird turtle woodpecker lynx firefly chipmunk""",
        verbs="watch follow feed/fed photograph track spot observe study draw/drew film count",
        good_verbs="rescue protect befriend shelter",
        bad_verbs="frighten scare startle disturb",
        plain="small wild brown nocturnal young gray",
        good="majestic playful gentle adorable graceful dazzling",
        bad="fierce vicious ugly aggressive mangy smelly",
        places="in the forest|in the rain|by the lake|under the stars|in the fog|along the river",
        events="storm|blizzard|sunset|thunderstorm|full moon",
    ),
    Scene(
        topic="technology",
        people="""programmer developer engineer hacker designer tester data_scientist coder cryptographer
            administrator researcher""",
        origins="lab startup helpdesk basement",
        acts="code debug/debugged/debugging tinker troubleshoot/troubleshot reboot",
        things="""app website algorithm database browser plugin chatbot software* firewall compiler
            prototype interface server module password code* spellchecker dashboard simulator""",
        verbs="build/built test update design install launch rewrite/rewrote release configure demonstrate",
        good_verbs="fix improve optimize",
        bad_verbs="crash break/broke delete corrupt",
        plain="mobile online digital experimental open-source",
        good="fast reliable elegant secure intuitive innovative",
        bad="slow buggy outdated unreliable insecure clunky",
        places="in the lab|at the keyboard|in the data center|at the hackathon table|in the cloud",
        events="outage|product demo|code review|sprint",
    ),
    Scene(
        topic="technology",
        people="""gamer influencer streamer blogger inventor technician subscriber podcaster vlogger
            early_adopter beta_tester teen""",
        origins="forum store internet basement",
        acts="scroll stream text browse blog",
        things="""laptop phone tablet camera drone printer keyboard headset console smartwatch charger
            robot router microphone projector scanner webcam speaker thermostat joystick""",
        verbs="buy/bought charge test borrow sell/sold connect order compare review replace unbox",
        good_verbs="repair upgrade customize",
        bad_verbs="smash drop break/broke return",
        plain="wireless portable black secondhand japanese old-fashioned waterproof",
        good="sleek powerful reliable elegant affordable ingenious",
        bad="faulty broken overpriced slow defective flimsy",
        places="in the basement|at the electronics store|on the couch|in the garage|on the subway",
        events="livestream|update|power cut|gadget fair",
    ),
)

# Words that every topic shares. Evaluations fit people as well as things.
HERS = "maria anna lucy emma olivia nadia grace sofia ingrid priya yuki amara"
HIS = "tom david omar peter leo hugo samuel victor carlos kenji felix diego"
PERSON_ADJECTIVES = """young new polite busy local tall quiet curious experienced nervous sleepy shy serious
    ambitious stubborn talkative eccentric bearded absent-minded soft-spoken freckled barefoot overdressed
    cautious impatient forgetful well-known punctual modest red-haired"""
OUTFITS = "mustache umbrella ponytail hat sunglasses/sunglasses backpack accent tattoo parrot briefcase scarf cane"
GOOD = "wonderful great amazing fantastic lovely excellent perfect beautiful superb marvelous impressive brilliant"
BAD = "terrible awful horrible dreadful disappointing mediocre lousy pathetic appalling miserable bad unbearable"
# States of mind are apart because they have no progressive form.
FEELINGS = {
    "positive": "love like adore admire appreciate",
    "negative": "hate dislike detest despise resent loathe",
}
EVALUATIONS = {
    "positive": "praise recommend celebrate applaud compliment rave_about",
    "negative": "criticize mock curse condemn complain_about grumble_about",
}
MANNERS = {
    "positive": """beautifully brilliantly wonderfully cheerfully happily skillfully gracefully perfectly
        splendidly flawlessly""",
    "neutral": "quietly slowly quickly carefully calmly patiently silently methodically discreetly swiftly",
    "negative": "badly terribly poorly carelessly clumsily horribly lazily miserably dreadfully grumpily",
}
INTERJECTIONS = {
    "positive": "wow|hooray|great news|bravo|yay|fantastic",
    "neutral": "look|hey|listen|guess what|oh|well",
    "negative": "ugh|oh no|alas|bad news|good grief|yikes",
}
COMMENTS = {
    "positive": "much to our delight|to everyone 's joy|to thunderous applause|with a big smile|with great pride",
    "neutral": "as usual|as planned|as expected|according to the newspaper|for some reason|without a word",
    "negative": "much to our dismay|to everyone 's horror|with a deep sigh|with a bitter frown|unfortunately",
}
CIRCUMSTANCES = "weather mood atmosphere timing music lighting company advice"
ONLOOKERS = "everyone|nobody else|the whole family|the crowd|a curious cat"
ONLOOKING = "watch wait listen sleep laugh argue"
