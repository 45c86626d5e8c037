"""Words of ordinal scales: likert scales in several languages, weekdays, months, sizes, levels of education."""

from __future__ import annotations

# One scale a line, from the lowest step to the highest: steps are separated by "<", words for the same step by "/".
_TABLE = """
strongly disagree/disagree strongly/completely disagree/totally disagree < disagree/somewhat disagree/tend to disagree \
< slightly disagree < neutral/neither agree nor disagree/neither/undecided/neither nor < slightly agree \
< agree/somewhat agree/tend to agree < strongly agree/agree strongly/completely agree/totally agree
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
never or hardly ever < in some lessons < in most lessons < in all lessons
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
none/no/absent < very low/vlow/minimal < low/mild/minor/slight < medium/med/moderate/average/mid/normal/intermediate \
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
"""Step of every word of every scale, from 0 for the lowest."""

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
"""Words by which a person gives no answer; in one column alone they may be an answer like others."""

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
"""Words that say that nothing is known."""
