"""Find the order of levels from intervals, numbers inside texts, or words of ordinal scales."""

from __future__ import annotations

import csv
import io
import math
import re
import shlex
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pmflib.base.texts import natural_key
from pmflib.schema.intervals import read_interval
from pmflib.schema.variable import read_number

# One scale per line, from the lowest step to the highest; "<" separates steps, "/" words for the same step.
_TABLE = """
strongly disagree/strong disagree/disagree strongly/completely disagree/totally disagree \
< disagree/somewhat disagree/tend to disagree \
< slightly disagree < neutral/neither agree nor disagree/neither/undecided/neither nor < slightly agree \
< agree/somewhat agree/tend to agree < strongly agree/strong agree/agree strongly/completely agree/totally agree
stimme überhaupt nicht zu/stimme gar nicht zu/trifft überhaupt nicht zu/trifft gar nicht zu/lehne völlig ab \
< stimme nicht zu/stimme eher nicht zu/trifft nicht zu/trifft eher nicht zu/lehne ab \
< teils teils/teils/weder noch/unentschieden/neutral < stimme zu/stimme eher zu/trifft zu/trifft eher zu \
< stimme voll zu/stimme völlig zu/stimme voll und ganz zu/trifft voll zu/trifft völlig zu/trifft voll und ganz zu
pas du tout d'accord/pas d'accord du tout/tout à fait en désaccord < pas d'accord/plutôt pas d'accord/en désaccord \
< neutre/ni d'accord ni pas d'accord/sans opinion < d'accord/plutôt d'accord < tout à fait d'accord/totalement d'accord
totalmente en desacuerdo/muy en desacuerdo < en desacuerdo/algo en desacuerdo \
< neutral/ni de acuerdo ni en desacuerdo/indiferente < de acuerdo/algo de acuerdo < totalmente de acuerdo/muy de acuerdo
fortemente in disaccordo/completamente in disaccordo/per niente d'accordo < in disaccordo/poco d'accordo \
< neutrale/né d'accordo né in disaccordo/indifferente < d'accordo/abbastanza d'accordo \
< fortemente d'accordo/completamente d'accordo/molto d'accordo
helemaal mee oneens/helemaal oneens/zeer mee oneens < mee oneens/oneens < neutraal/niet eens niet oneens \
< mee eens/eens < helemaal mee eens/helemaal eens/zeer mee eens
never/not at all/never or hardly ever/never or almost never < almost never/hardly ever/very rarely < rarely/seldom \
/once or twice/a few times a year/a few times < occasionally/once in a while/several times a year/about once a month \
< sometimes/several times a month/a few times a month < about once a week/weekly/once a week < often/frequently \
/several times a week < very often/almost always/usually/almost every day/several times < always/daily/every day \
/many times < several times a day
never < yearly/annually < quarterly < monthly < fortnightly/biweekly/every two weeks < weekly < daily < hourly
not at all < a little/slightly/very little/a little bit < somewhat/moderately/to some extent \
< quite/quite a bit/mostly < very/a lot/very much < extremely/completely
not at all/none at all < not much/only a little < some < a fair amount/quite a lot < a lot/a great deal
never or hardly ever/never/none/no/hardly any < few/a few < some < half/about half < many < most/almost all/nearly all \
< all/every
not at all/not < not very/not too/not so/not really/hardly < a little/slightly/a bit < somewhat/fairly/moderately \
< quite < very < extremely/completely
nie/niemals < fast nie/sehr selten < selten < gelegentlich/manchmal/ab und zu < häufig/oft < sehr oft/sehr häufig \
/meistens/fast immer < immer/täglich
jamais < presque jamais/très rarement < rarement < parfois/quelquefois/de temps en temps < souvent \
< très souvent/presque toujours < toujours
nunca < casi nunca/muy rara vez < raramente/rara vez < a veces/algunas veces < a menudo/frecuentemente/con frecuencia \
< casi siempre/muy a menudo < siempre
mai < quasi mai < raramente < a volte/qualche volta/talvolta < spesso < molto spesso/quasi sempre < sempre
nooit < bijna nooit < zelden < soms/af en toe < vaak/regelmatig < heel vaak/bijna altijd < altijd
unacceptable/unacc/terrible/awful < very poor/very bad/extremely poor < poor/bad < below average \
< fair/average/acceptable/acc/okay/ok/mediocre < above average < good < very good/vgood < excellent/outstanding/perfect
sehr schlecht/ungenügend < schlecht/mangelhaft < mittelmäßig/mittel/ausreichend/mäßig < befriedigend < gut < sehr gut \
< ausgezeichnet/hervorragend
très mauvais/très mauvaise < mauvais/mauvaise < passable/moyen/moyenne < assez bon/assez bien/assez bonne \
< bon/bien/bonne < très bon/très bien/très bonne < excellent/excellente
muy malo/muy mala/muy mal < malo/mala/mal < regular/aceptable < bueno/buena/bien < muy bueno/muy buena/muy bien \
< excelente
pessimo/pessima < scarso/scarsa/cattivo/cattiva < mediocre/insufficiente < sufficiente/discreto/discreta \
< buono/buona < molto buono/ottimo/ottima < eccellente
zeer slecht/heel slecht < slecht < matig < redelijk/gemiddeld/voldoende < goed < zeer goed/heel goed < uitstekend
very dissatisfied/extremely dissatisfied < dissatisfied < somewhat dissatisfied < neutral/neither \
/neither satisfied nor dissatisfied < somewhat satisfied < satisfied < very satisfied/extremely satisfied
sehr unzufrieden < unzufrieden < eher unzufrieden < teils teils/neutral/weder noch < eher zufrieden < zufrieden \
< sehr zufrieden
très insatisfait/pas du tout satisfait/très insatisfaite < insatisfait/peu satisfait/plutôt insatisfait/insatisfaite \
< neutre/ni satisfait ni insatisfait < satisfait/plutôt satisfait/satisfaite < très satisfait/très satisfaite
muy insatisfecho/muy insatisfecha < insatisfecho/insatisfecha < neutral/indiferente < satisfecho/satisfecha \
< muy satisfecho/muy satisfecha
molto insoddisfatto/molto insoddisfatta < insoddisfatto/insoddisfatta < neutrale/indifferente \
< soddisfatto/soddisfatta < molto soddisfatto/molto soddisfatta
zeer ontevreden/heel ontevreden < ontevreden < neutraal < tevreden < zeer tevreden/heel tevreden
not important at all/not at all important < not important/slightly important/not very important \
< neutral/moderately important < important/fairly important < very important < extremely important
very unlikely/extremely unlikely < unlikely/not likely < neutral < likely < very likely/extremely likely
none/no/absent < very low/vlow/minimal < low/mild/minor/slight \
< medium/med/middle/moderate/average/mid/normal/intermediate \
< high/severe/major < very high/vhigh/very severe < critical/extreme
keine < sehr niedrig/sehr gering < niedrig/gering < mittel/mäßig < hoch < sehr hoch
très faible < faible/bas/basse < moyen/moyenne < élevé/élevée/haut < très élevé/très élevée
muy bajo/muy baja < bajo/baja < medio/media < alto/alta < muy alto/muy alta
molto basso/molto bassa < basso/bassa < medio/media < alto/alta < molto alto/molto alta
zeer laag < laag < gemiddeld/middel < hoog < zeer hoog
much worse < worse/somewhat worse < about the same/same/unchanged/no change < better/somewhat better < much better
decreasing/down < stable/steady/no/unchanged < increasing/up
xxs/2xs < xs/extra small < s/small < m/med/medium/mid < l/large/big < xl/extra large < xxl/2xl < xxxl/3xl
tiny/very small < small < medium/med/mid < big/large < very big/very large/huge
sehr klein < klein < mittel < groß/gross < sehr groß/sehr gross
newborn/infant/baby < toddler < child/children < adolescent/teenager/teen < young adult < adult < middle aged < senior \
/elderly/old
young < middle aged/middle age/middle/pre-presbyopic < old/presbyopic
first/1st < second/2nd < third/3rd < fourth/4th < fifth/5th < sixth/6th
cold/cool < mild/warm < hot
bronze < silver < gold < platinum
beginner/novice < intermediate < advanced < expert
monday/mon < tuesday/tue/tues < wednesday/wed < thursday/thu/thur/thurs < friday/fri < saturday/sat < sunday/sun
montag/mo < dienstag/di < mittwoch/mi < donnerstag/do < freitag/fr < samstag/sa/sonnabend < sonntag/so
lundi < mardi < mercredi < jeudi < vendredi < samedi < dimanche
lunes < martes < miércoles < jueves < viernes < sábado < domingo
lunedì < martedì < mercoledì < giovedì < venerdì < sabato < domenica
maandag < dinsdag < woensdag < donderdag < vrijdag < zaterdag < zondag
january/jan < february/feb < march/mar < april/apr < may < june/jun < july/jul < august/aug < september/sep/sept \
< october/oct < november/nov < december/dec
januar/jan/jänner < februar/feb < märz/mär/mrz < april/apr < mai < juni/jun < juli/jul < august/aug < september/sep \
< oktober/okt < november/nov < dezember/dez
janvier < février < mars < avril < mai < juin < juillet < août < septembre < octobre < novembre < décembre
enero/ene < febrero/feb < marzo/mar < abril/abr < mayo/may < junio/jun < julio/jul < agosto/ago < septiembre/sep \
< octubre/oct < noviembre/nov < diciembre/dic
gennaio < febbraio < marzo < aprile < maggio < giugno < luglio < agosto < settembre < ottobre < novembre < dicembre
januari < februari < maart < april < mei < juni < juli < augustus < september < oktober < november < december
winter < spring < summer < autumn/fall
none/no schooling/illiterate < preschool/kindergarten < 1st-4th/primary/elementary/primary school/elementary school \
/basic.4y/basic 4y < 5th-6th/basic.6y/basic 6y < 7th-8th/middle school/basic.9y/basic 9y < 9th < 10th < 11th \
/some high school < 12th < hs-grad/high school/high school graduate/secondary/high.school/secondary school \
< some-college/some college < assoc-voc < assoc-acdm/associate/associate degree/associate's degree \
< bachelors/bachelor/bachelor's degree/bachelor's/college/undergraduate/university.degree/tertiary/bachelor degree \
/university < masters/master/master's degree/master's/graduate/graduate school/master degree < prof-school \
/professional.course < doctorate/phd/doctoral/doctoral degree/ph.d.
no formal education/none/primary school or less < less than high school/less than a high school/some high school \
/did not finish high school/did not graduate high school/no high school/did not complete high school \
< high school/high school degree/high school diploma/high school graduate/completed high school/ged \
< vocational/vocational training/trade school/technical school/vocational school \
< some college/some college or associate degree/some college or associate's degree/some university \
< associate/associate degree/associate's degree/associates degree/two-year degree/2-year degree \
< college/college degree/bachelor/bachelor degree/bachelor's degree/bachelors degree/college graduate \
/undergraduate degree/university degree/four-year degree/4-year degree < some graduate school/some postgraduate \
/some graduate < graduate degree/postgraduate/postgraduate degree/post graduate degree/post-graduate degree/master \
/master's degree/masters degree/advanced degree < professional degree/professional school \
< doctorate/doctoral/doctoral degree/doctorate degree/phd/ph.d
not at all/none at all/none/nothing < a little/very little/only a little/just a little/not much/not a lot \
< some/somewhat/a moderate amount/a fair amount/moderately < a lot/quite a bit/quite a lot/much \
< a great deal/very much/completely/a tremendous amount
never/not at all/none of the time < almost never/hardly ever/rarely, if ever/rarely if ever \
< rarely/seldom/once in a while/a little of the time/every once in a while/now and then < occasionally \
< sometimes/some of the time/from time to time < about half the time/half the time/half of the time/a fair amount \
< often/frequently/usually/most of the time/regularly/a lot < almost always/very often/nearly always \
< always/all the time/all of the time/constantly
never/i have never/not at all < less than once a year/less often than once a year < once a year/yearly/annually \
/about once a year/once a year or less/once per year < a few times a year/several times a year/a few times per year \
/less than once a month/every few months < once a month/monthly/about once a month/once or twice a month \
/once per month < a few times a month/several times a month/a few times per month < once a week/weekly \
/about once a week/once or twice a week/once per week \
< a few times a week/several times a week/a few times per week/most days \
/almost every day/several days a week < every day/daily/once a day/about once a day/once per day \
< several times a day/a few times a day/multiple times a day/more than once a day/a few times per day
never/none/zero times/not at all < once/one time/1 time/only once < twice/two times/2 times \
< three times/3 times/thrice < four times/4 times < five times/5 times \
< six times/6 times/more than five times/more than 5 times/more often/more than that
rare < medium rare < medium < medium well < well/well done
"""


def _read_table() -> tuple[dict[str, int], ...]:
    return tuple(
        {
            word.strip(): step
            for step, words in enumerate(line.split("<"))
            for word in words.split("/")
        }
        for line in _TABLE.strip().splitlines()
    )


SCALES: tuple[dict[str, int], ...] = _read_table()
"""Step of every word of each scale, from 0 for the lowest."""

NO_ANSWERS = frozenset(
    word.strip()
    for word in """
don't know|dont know|do not know|dk|not sure|unsure|cannot say|can't say|refused|refuse|refusal|prefer not to say
|prefer not to answer|no answer|no response|not answered|not applicable|does not apply|n.a.|none of these
|none of the above|no opinion|weiß nicht|weiss nicht|keine angabe|keine antwort|trifft nicht zu (entfällt)
|ne sait pas|ne sais pas|nsp|sans réponse|non réponse|sans objet|no sabe|no contesta|ns/nc|no responde|no aplica
|non so|non risponde|nessuna risposta|weet niet|geen antwoord|niet van toepassing|not asked|question not asked
""".replace("\n", "").split("|")
)
"""Words for not answering; in a single column, they may be regular answers."""
_NO_ANSWER = re.compile(
    r"(?:i(?:'d|'m| would| am)? )?(?:"
    r"(?:would )?(?:prefer|rather|choose|chose|wish)(?: to)? not(?: to)? "
    r"(?:say|answer|disclose|respond|share|state|tell|specify|identify)"
    r"|(?:decline|declined|refuse|refused)(?: to (?:say|answer|state|respond|disclose))?"
    r"|(?:don't|dont|do not) (?:know|remember|recall|understand)(?: .{1,20})?"
    r"|(?:can't|cannot|can not) (?:say|choose|remember|recall|decide|tell)"
    r"|(?:not|un)(?: really| quite)? ?(?:sure|certain)|no idea|(?:hard|difficult|unable) to (?:say|tell)"
    r"|(?:doesn't|does not) apply(?: to me)?|not applicable(?: to me)?)"
)
"""Sentences for not answering."""


def is_no_answer(word: str) -> bool:
    """Whether a normalised text says that a person does not answer: "don't know", "I'd rather not say (refused)"."""
    parts = re.split(r"\s*(?:/|,|;|\bor\b|[()\[\]])\s*", word)
    return word in NO_ANSWERS or all(
        part in NO_ANSWERS or _NO_ANSWER.fullmatch(part)
        for part in [parts[0], *filter(None, parts)]
    )


ABSENT = frozenset(
    word.strip()
    for word in """
?|??|???|-|--|---|.|..|na|n/a|n.a|nan|null|nil|(null)|<na>|#n/a|\\n|unknown|unk|unkn|unspecified|not specified
|not available|not stated|not given|not recorded|not reported|not known|missing|undefined|no data|nodata|no info
|no information|invalid|unbekannt|fehlt|fehlend|k.a.|inconnu|inconnue|manquant|non renseigné|non précisé
|desconocido|desconocida|sin dato|sin datos|sin información|sconosciuto|sconosciuta|non disponibile|mancante
|onbekend|ontbreekt|niet bekend|<null>|not provided
""".replace("\n", "").split("|")
)
"""Words for missing values."""


_PREFIX = re.compile(r"\s*[(\[]?(-?\d{1,3})\s*(?:[.:)=\]]|\s-\s|\s\u2013\s)\s*(\S.*)?")
_MOST_ASIDE = 2
"""Largest number of words for not answering beside an order."""


@dataclass(frozen=True)
class LevelOrder:
    """Levels in order, with values if they are ordinal, and the reason for the order.

    Parameters
    ----------
    levels
        Levels in order.
    values
        Increasing number of each level; None if the order has no meaning.
    reason
        Reason for the order.
    aside
        Levels behind the others that are no steps of the order, such as "don't know".
    """

    levels: tuple[str, ...]
    values: tuple[float, ...] | None
    reason: str
    aside: tuple[str, ...] = ()


UNORDERED = "names without a known order"
"""Reason for levels in natural order."""


def find_level_order(texts: Sequence[str]) -> LevelOrder:
    """Put the levels of a column in order.

    Parameters
    ----------
    texts
        Distinct levels.

    Returns
    -------
    Levels by leading numbers, by intervals, by the steps of a known scale or, if none of these applies to all of them,
    in natural order ("item2" before "item10"). Words for not answering stand behind the others.
    """
    aside = tuple(sorted(text for text in texts if is_no_answer(normalise_word(text))))
    asked = [text for text in texts if text not in aside]
    if (found := _order_steps(texts)) is not None:
        return found
    if aside and len(aside) <= _MOST_ASIDE and (found := _order_steps(asked)) is not None:
        reason = f"{found.reason}, and {list(aside)} behind it"
        return LevelOrder((*found.levels, *aside), None, reason, aside)
    return LevelOrder(tuple(sorted(texts, key=natural_key)), None, UNORDERED)


def _order_steps(texts: Sequence[str]) -> LevelOrder | None:
    return _order_prefixes(texts) or _order_intervals(texts) or _order_words(texts)


def normalise_word(text: str) -> str:
    """Normalise case, apostrophes, underscores and surrounding punctuation."""
    text = unicodedata.normalize("NFC", text).casefold().replace("’", "'").replace("´", "'")  # noqa: RUF001
    return " ".join(text.replace("_", " ").replace("ß", "ss").split()).strip(" .!,;:")


def _order_prefixes(texts: Sequence[str]) -> LevelOrder | None:
    numbers: dict[str, float] = {}
    n_named = 0
    for text in texts:
        match = _PREFIX.fullmatch(text)
        name = match[2] if match else None
        if name and name[0].isdigit():
            return None
        number = float(match[1]) if match else read_number(text)
        if number is None:
            return None
        numbers[text] = number
        n_named += bool(name)
    # scales may have words only at their ends: "(1) not useful", "(2)", ...
    if len(texts) < 2 or n_named < 2 or len(set(numbers.values())) < len(texts):
        return None
    levels = tuple(sorted(texts, key=numbers.__getitem__))
    return LevelOrder(levels, tuple(numbers[t] for t in levels), "ordered by the number in front")


def _order_intervals(texts: Sequence[str]) -> LevelOrder | None:
    ends: dict[str, tuple[float, float]] = {}
    rest = []
    for text in texts:
        interval = read_interval(text)
        if interval is None:
            rest.append(text)
        else:
            ends[text] = interval
    if rest in (["more"], ["More"]) and len(ends) > 1:
        ends[rest.pop()] = (max(high for _, high in ends.values()) + 1, math.inf)
    widths = [high - low for low, high in ends.values() if math.isfinite(high - low)]
    has_units = all(read_number(text) is None for text in ends)
    if rest or len(ends) < 2 or not (has_units or any(a < b for a, b in ends.values())):
        return None
    levels = sorted(ends, key=lambda text: (ends[text], natural_key(text)))
    for a, b in pairwise(levels):
        if ends[b][0] < ends[a][1] and not (math.isinf(ends[a][0]) and ends[b][0] == ends[a][1]):
            # overlapping intervals have no order
            return None
    wide = [width for width in widths if width]
    if not widths:
        # without a width, midpoints of open intervals would be arbitrary
        return LevelOrder(tuple(levels), None, "open intervals in order, which have no middles")
    half = (sum(wide) / len(wide) if wide else 1.0) / 2
    values = []
    for text in levels:
        low, high = ends[text]
        if math.isinf(low):
            values.append(high - half)
        else:
            values.append(low + half if math.isinf(high) else (low + high) / 2)
    if any(a >= b for a, b in pairwise(values)):
        values = [float(rank) for rank in range(1, len(levels) + 1)]
    return LevelOrder(tuple(levels), tuple(values), "intervals in order; values are their middles")


def _order_words(texts: Sequence[str]) -> LevelOrder | None:
    words = {text: normalise_word(text) for text in texts}
    steps = _find_steps(words, texts) if len(texts) > 1 else None
    if steps is None:
        return None
    levels = tuple(sorted(texts, key=steps.__getitem__))
    values = tuple(float(step + 1) for step in range(len(levels)))
    return LevelOrder(levels, values, f"a known scale, {levels[0]!r} to {levels[-1]!r}")


_NORMAL_SCALES = [{normalise_word(word): step for word, step in scale.items()} for scale in SCALES]
_LONGEST_FIRST = [
    re.compile(
        r"(?<!\w)(?:" + "|".join(map(re.escape, sorted(scale, key=len, reverse=True))) + r")(?!\w)"
    )
    for scale in _NORMAL_SCALES
]
"""Patterns of the words of each scale, longest first ("not at all" before "all")."""
_NOT = re.compile(r"(?<!\w)(?:not|no|non|nicht|kein|keine|pas|ni|niet)\s+(?:\w+\s+)?$")
"""Negations before a word of a scale."""
_LONG = 3
"""Least number of levels for words of a scale to be searched inside longer texts, as two could match by chance."""
_MOST_LEVELS = 12
"""Largest number of levels of a scale in words."""


def _find_steps(words: Mapping[str, str], asked: Sequence[str]) -> dict[str, int] | None:
    """Step of each level on a known scale, by all its words, those not common to all levels, or some of them."""
    if {words[text] for text in asked} <= {"no", "up", "down"}:
        return None
    own = _drop_common({text: words[text] for text in asked})
    for variant in ({text: words[text] for text in asked}, own):
        for scale in _NORMAL_SCALES:
            steps = {text: scale[word] for text, word in variant.items() if word in scale}
            if _are_steps(steps, asked):
                return steps
    if not _LONG <= len(asked) <= _MOST_LEVELS:
        return None
    for scale, pattern in zip(_NORMAL_SCALES, _LONGEST_FIRST, strict=True):
        found: dict[str, int] = {}
        for text in asked:
            match = pattern.search(words[text])
            if match is None or _NOT.search(words[text][: match.start()]):
                break
            found[text] = scale[match[0]]
        if _are_steps(found, asked):
            return found
    return None


def _are_steps(steps: Mapping[str, int], asked: Sequence[str]) -> bool:
    return len(steps) == len(asked) == len(set(steps.values()))


def _drop_common(words: Mapping[str, str]) -> dict[str, str]:
    """Remove words common to all levels: "very useful", "not useful at all" become "very", "not at all".

    If nothing remains, as for "useful", the level is a step below "very".
    """
    split = {text: word.split() for text, word in words.items()}
    common = set.intersection(*map(set, split.values()))
    if not common:
        return dict(words)
    plain = "quite" if len(words) >= _LONG else ""
    return {
        text: " ".join(word for word in parts if word not in common) or plain
        for text, parts in split.items()
    }


LEAST_NEAR = 3
"""Least number of steps of a known scale among levels that are nearly ordered."""
_NEGATION = re.compile(r"(?<!\w)(?:not|no|none|never|nothing)(?!\w)")


def suggest_order(texts: Sequence[str]) -> LevelOrder | None:
    """Suggest an order of levels that a known scale orders but for one, or for two of one step; None for others.

    A person must say whether it is right: "Never, and not open to it" and "Never, but open to it" are one step. A level
    that is no step is in ``aside``.
    """
    if not LEAST_NEAR < len(texts) <= _MOST_LEVELS:
        return None
    words = {text: normalise_word(text) for text in texts}
    best: dict[str, int] = {}
    for scale, pattern in zip(_NORMAL_SCALES, _LONGEST_FIRST, strict=True):
        found = {text: scale[m[0]] for text, word in words.items() if (m := pattern.match(word))}
        if len(set(found.values())) > len(set(best.values())):
            best = found
    n_steps = len(set(best.values()))
    if n_steps < LEAST_NEAR or n_steps < len(texts) - 1:
        return None
    negated = {text for text, word in words.items() if _NEGATION.search(word.split(",")[-1])}
    last = max(best.values()) + 1
    steps = {text: best.get(text, -1 if text in negated else last) for text in texts}
    levels = tuple(sorted(texts, key=lambda text: (steps[text], text not in negated, text)))
    odd = tuple(text for text in levels if text not in best)
    return LevelOrder(levels, None, f"{UNORDERED}, but nearly one of a known scale", odd)


def join_levels(levels: Sequence[str]) -> str:
    """Write levels for a shell as `split_levels` reads them.

    Examples
    --------
    >>> print(join_levels(["Never, so far", "Often"]))
    '"Never, so far",Often'
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(levels)
    return shlex.quote(text.getvalue())


def split_levels(texts: Sequence[str]) -> tuple[str, ...]:
    """Read levels: several texts are a level each, a single one is a line of CSV.

    Examples
    --------
    >>> split_levels(['"Never, so far",Often']), split_levels(["a,b", "c"])
    (('Never, so far', 'Often'), ('a,b', 'c'))
    """
    if len(texts) != 1:
        return tuple(texts)
    return tuple(next(csv.reader(texts, skipinitialspace=True), ()))
