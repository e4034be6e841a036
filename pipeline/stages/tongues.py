"""How models decline, language by language: patterns on folded text (NFKC, lower case, single spaces)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SPACED", "UNSPACED", "Tongue"]


@dataclass(frozen=True, slots=True)
class Tongue:
    """How one language declines; every pattern is matched where a sentence begins, after its ``leads``.

    Attributes:
        leads: What politeness puts in front.
        blind: No picture was seen, or a machine says that it is one: enough also in front of a long text.
        declines: Enough where little else is said.
    """

    leads: str
    blind: tuple[str, ...]
    declines: tuple[str, ...]


_EN_SEE = (
    r"(?:see|view|access|open|read|display|process|analy[sz]e|interpret|transcribe|describe|examine|look at|extract)"
)
_EN_CANT = (
    r"i(?:'m| am)? (?:currently |actually |really )?(?:can ?not|can't|could ?n't|could not|unable to|not able to"
    r"|don't have the (?:ability|capability) to|do not have the (?:ability|capability) to"
    r"|(?:do not|don't) have (?:direct )?access to) ?(?:\w+ ){0,2}?"
)
_EN_IMAGE = r"(?:image|picture|photo|screenshot|visual|attachment)"
_EN_PAPER = r"(?:page|file|document|scan|pdf|content|text)"
_EN_HERE = r"(?:provided|attached|uploaded|included|given|visible|shared|supplied|received|shown|loaded)"

_ENGLISH = Tongue(
    leads=(
        r"(?:i'm|i am|we're) (?:really |very |so )?sorry(?: that)?|sorry|my apologies|apologies|unfortunately"
        r"|i apologi[sz]e(?: for the (?:confusion|inconvenience))?|it (?:seems|appears|looks)(?: like| that| as if)?"
        r"|however|but|hi|hello|thank you(?: for [\w ]+)?"
    ),
    blind=(
        rf"{_EN_CANT}{_EN_SEE}.{{0,60}}?\b{_EN_IMAGE}",
        rf"{_EN_CANT}(?:any |the |an? |your |attached )*{_EN_IMAGE}",
        rf"i (?:do ?n't|did ?n't|do not|did not) (?:actually )?(?:see|receive|have|find|get) (?:an?|any|the|your) "
        rf"(?:attached )?{_EN_IMAGE}",
        rf"(?:there (?:is|was) |i (?:see|found|have|received) )?no {_EN_IMAGE}s?\b.{{0,20}}\b(?:{_EN_HERE}|here|to )",
        rf"(?:the|your|this) {_EN_IMAGE}.{{0,30}}(?:n't|not)(?: be| been)?(?: able to)?(?: be)? ?"
        rf"(?:{_EN_HERE}|load|display|come through|processed|viewed|accessible)",
        r"as an? (?:ai|artificial intelligence|(?:large )?language model|text-(?:based|only))\b",
        r"i(?:'m| am) (?:just |only )?an? (?:ai|artificial intelligence|(?:large )?language model|text-based)\b",
    ),
    declines=(
        rf"{_EN_CANT}{_EN_SEE}.{{0,60}}?\b{_EN_PAPER}",
        rf"(?:i )?(?:was )?(?:unable|not able) to {_EN_SEE}.{{0,40}}\b(?:{_EN_IMAGE}|{_EN_PAPER})",
        r"i (?:can ?not|can't|won't|will not|'?a?m (?:unable|not able) to|must decline|have to decline).{0,20}?"
        r"\b(?:assist|help|comply|fulfil|complete|continue|do that|do this|respond|answer|provide|to)",
        r"i(?:'m| am) (?:unable|not able) to (?:assist|help|comply|fulfil|complete|provide|process|respond|answer)",
        rf"(?:please|could you|can you|kindly) (?:please )?(?:re-?)?(?:upload|provide|attach|share|send|paste) "
        rf".{{0,25}}(?:{_EN_IMAGE}|{_EN_PAPER})",
        r"(?:this|the|your) (?:request|content|image|page) (?:violates|goes against|is against)",
        r"(?:i can ?not|i can't)$",
    ),
)

_IMAGE_DE, _PAPER_DE = r"(?:bild|foto|abbildung|aufnahme|anhang)", r"(?:seite|datei|dokument|inhalt|text)"
_CANT_DE = r"(?:ich kann|kann ich|ich konnte|konnte ich)"
_GERMAN = Tongue(
    leads=r"(?:es )?tut mir (?:sehr )?leid|leider|entschuldigung|entschuldigen sie|bedaure|aber|ich bedauere?",
    blind=(
        rf"{_CANT_DE} (?:leider )?(?:\w+ ){{0,3}}?\w*{_IMAGE_DE}\w* .{{0,25}}\bnicht\b",
        rf"(?:ich kann|kann ich) (?:leider )?keine? \w*{_IMAGE_DE}",
        rf"(?:ich sehe|sehe ich|ich habe|es wurde|es ist|es liegt|wurde) (?:leider )?keine? \w*{_IMAGE_DE}",
        rf"(?:das|dein|ihr) {_IMAGE_DE} (?:ist|wurde|wird|konnte) (?:leider )?nicht",
        r"als (?:reine[rs]? )?(?:ki|sprachmodell|künstliche intelligenz|textbasierte\w*)\b",
        r"ich bin (?:nur |lediglich )?(?:eine? )?(?:ki|sprachmodell|künstliche intelligenz)\b",
    ),
    declines=(
        rf"{_CANT_DE} .{{0,30}}\w*{_PAPER_DE}\w* .{{0,25}}\bnicht\b",
        rf"(?:(?:dabei|damit|hierbei|da) )?{_CANT_DE} .{{0,30}}nicht (?:weiter)?(?:helfen|behilflich|nachkommen)",
        r"(?:ich bin|bin ich) (?:leider )?nicht in der lage",
        rf"bitte (?:laden?|stellen?|senden?|fügen?) .{{0,30}}(?:{_IMAGE_DE}|{_PAPER_DE})",
    ),
)

_IMAGE_FR, _PAPER_FR = (
    r"(?:images?|photos?|captures?|pièces? jointes?)",
    r"(?:pages?|fichiers?|documents?|contenu|texte)",
)
_SEE_FR = r"(?:voir|lire|accéder|afficher|ouvrir|analyser|traiter|transcrire|décrire|consulter|visualiser|extraire)"
_CANT_FR = r"je ne (?:peux|puis|suis|parviens|vois)(?: malheureusement)? pas(?: en mesure de| capable de| à)?"
_FRENCH = Tongue(
    leads=r"(?:je suis )?(?:vraiment )?désolée?|malheureusement|je m'excuse|toutes mes excuses|excusez-moi|mais",
    blind=(
        rf"{_CANT_FR} {_SEE_FR}.{{0,40}}\b{_IMAGE_FR}",
        rf"je ne (?:vois|trouve|reçois) (?:pas d'|pas l'|pas de |aucune? ){_IMAGE_FR}",
        rf"aucune {_IMAGE_FR} n'",
        r"(?:l'|votre |cette )image n'",
        r"en tant qu(?:'|e )(?:ia|intelligence|assistant|modèle)",
        r"je suis (?:une|un) (?:ia|intelligence artificielle|modèle de langage)",
    ),
    declines=(
        rf"{_CANT_FR} {_SEE_FR}.{{0,40}}\b{_PAPER_FR}",
        rf"{_CANT_FR} (?:vous )?(?:aider|assister|répondre|effectuer|satisfaire|donner suite)",
        rf"(?:veuillez|merci de|pourriez-vous) .{{0,25}}(?:{_IMAGE_FR}|{_PAPER_FR})",
    ),
)

_IMAGE_ES, _PAPER_ES = r"(?:imagen|imágenes|foto|captura|adjunto)", r"(?:página|archivo|documento|contenido|texto)"
_SEE_ES = r"(?:ver|leer|acceder|abrir|visualizar|procesar|analizar|transcribir|describir|extraer|interpretar)"
_CANT_ES = r"(?:yo )?no (?:puedo|soy capaz de|me es posible|tengo (?:la )?capacidad (?:de|para)|logro|tengo acceso)"
_SPANISH = Tongue(
    leads=r"lo siento(?: mucho)?|lamentablemente|desafortunadamente|disculp[ae]|perdón|lamento|pero|mis disculpas",
    blind=(
        rf"{_CANT_ES} .{{0,15}}{_SEE_ES}?.{{0,40}}\b{_IMAGE_ES}",
        rf"no (?:veo|hay|encuentro|he recibido|recibí|se (?:ha )?\w+) (?:la |una |ninguna )?{_IMAGE_ES}",
        rf"la {_IMAGE_ES} no ",
        r"como (?:una? )?(?:ia|modelo de lenguaje|inteligencia artificial)\b",
        r"soy (?:solo )?(?:una? )?(?:ia|modelo de lenguaje|inteligencia artificial)\b",
    ),
    declines=(
        rf"{_CANT_ES} .{{0,15}}{_SEE_ES}.{{0,40}}\b{_PAPER_ES}",
        r"no puedo (?:ayudar|asistir|cumplir|realizar|procesar|responder|proporcionar)",
        rf"(?:por favor|podrías|podría) .{{0,30}}(?:{_IMAGE_ES}|{_PAPER_ES})",
    ),
)

_IMAGE_PT, _PAPER_PT = r"(?:imagem|imagens|foto|captura|anexo)", r"(?:página|arquivo|ficheiro|documento|conteúdo|texto)"
_SEE_PT = r"(?:ver|ler|acessar|aceder|abrir|visualizar|processar|analisar|transcrever|descrever|extrair|interpretar)"
_CANT_PT = r"(?:eu )?não (?:consigo|posso|sou capaz de|é possível|tenho (?:a )?capacidade de|tenho acesso)"
_PORTUGUESE = Tongue(
    leads=r"desculpe|desculpa|sinto muito|lamento|infelizmente|peço desculpas?|mas",
    blind=(
        rf"{_CANT_PT} .{{0,15}}{_SEE_PT}?.{{0,40}}\b{_IMAGE_PT}",
        rf"não (?:vejo|há|recebi|foi \w+) (?:a |uma |nenhuma )?{_IMAGE_PT}",
        rf"(?:nenhuma imagem|a {_IMAGE_PT} não) ",
        r"como (?:uma? )?(?:ia|modelo de linguagem|inteligência artificial)\b",
        r"(?:eu )?sou (?:apenas )?(?:uma? )?(?:ia|modelo de linguagem|inteligência artificial)\b",
    ),
    declines=(
        rf"{_CANT_PT} .{{0,15}}{_SEE_PT}.{{0,40}}\b{_PAPER_PT}",
        r"(?:eu )?não posso (?:ajudar|atender|cumprir|responder|fornecer|realizar)",
    ),
)

_IMAGE_IT, _PAPER_IT = r"(?:immagin[ei]|foto|allegato|schermata)", r"(?:pagina|file|documento|contenuto|testo)"
_SEE_IT = r"(?:vedere|leggere|accedere|aprire|visualizzare|elaborare|analizzare|trascrivere|descrivere|estrarre)"
_CANT_IT = r"non (?:posso|riesco a|sono in grado di|mi è possibile|ho accesso)"
_ITALIAN = Tongue(
    leads=r"mi dispiace|purtroppo|spiacente|scusa|scusate|mi scuso|ma",
    blind=(
        rf"{_CANT_IT} .{{0,15}}{_SEE_IT}?.{{0,40}}\b{_IMAGE_IT}",
        rf"non (?:vedo|c'è|è stata|ho ricevuto) .{{0,15}}{_IMAGE_IT}",
        r"(?:nessuna immagine|l'immagine non) ",
        r"(?:in quanto|come) (?:una? )?(?:ia|ai|modello (?:linguistico|di linguaggio)|intelligenza artificiale)\b",
    ),
    declines=(
        rf"{_CANT_IT} .{{0,15}}{_SEE_IT}.{{0,40}}\b{_PAPER_IT}",
        r"non posso (?:aiutar|assister|soddisfare|risponder|fornire)",
    ),
)

_DUTCH = Tongue(
    leads=r"(?:het )?spijt (?:me|mij)|sorry|helaas|maar|excuses",
    blind=(
        r"(?:ik kan|kan ik) .{0,40}(?:afbeelding|foto|bijlage)\w* .{0,15}\bniet\b",
        r"(?:ik zie|ik kan|zie ik|er is|kan ik) geen (?:afbeelding|foto|bijlage)",
        r"als (?:een )?(?:ai|taalmodel)\b",
    ),
    declines=(
        r"(?:ik kan|kan ik) .{0,40}(?:pagina|bestand|document)\w* .{0,15}\bniet\b",
        r"(?:ik kan|kan ik) .{0,25}niet .{0,10}helpen",
    ),
)

_POLISH = Tongue(
    leads=r"przepraszam|niestety|przykro mi|ale",
    blind=(
        r"nie (?:mogę|widzę|jestem w stanie|mam dostępu) .{0,40}(?:obraz|zdjęci|grafik|załącznik)",
        r"jako (?:model językowy|sztuczna inteligencja|ai)\b",
    ),
    declines=(r"nie (?:mogę|jestem w stanie) .{0,30}(?:pomóc|stron|plik|dokument)",),
)

_RUSSIAN = Tongue(
    leads=r"к сожалению|извините|простите|прошу прощения|мне очень жаль|мне жаль|но",
    blind=(
        r"(?:я )?не (?:могу|вижу|способен|в состоянии|имею возможности).{0,40}(?:изображени|картинк|фото|вложени)",
        r"(?:изображени|картинк)\w* не ",
        r"(?:как|я —|я -|я) (?:ии|языковая модель|искусственный интеллект)\b",
    ),
    declines=(
        r"(?:я )?не могу .{0,40}(?:страниц|файл|документ)",
        r"(?:я )?не могу (?:вам )?(?:помочь|выполнить|обработать|ответить)",
    ),
)

_TURKISH = Tongue(
    leads=r"üzgünüm|maalesef|özür dilerim|ama",
    blind=(
        r".{0,25}(?:görsel|görüntü|resim|resm|fotoğraf)\w* .{0,25}(?:göremiyorum|okuyamıyorum|erişemiyorum|açamıyorum)",
        r"bir (?:yapay zek[aâ]|dil modeli)\b",
    ),
    declines=(r".{0,30}yardımcı olamam",),
)

_ARABIC = Tongue(
    leads=r"عذر[اًا]+|آسف|أعتذر|معذرة|للأسف|لكن",
    blind=(
        r"(?:أنا )?(?:لا (?:أستطيع|يمكنني|أرى)|ليس بإمكاني|لم أتمكن من|لا توجد).{0,30}(?:صورة|الصور)",
        r"(?:بصفتي|كوني|كنموذج).{0,15}(?:نموذج|ذكاء|لغ)",
    ),
    declines=(r"(?:لا (?:أستطيع|يمكنني)).{0,30}(?:مساعد|الصفحة|الملف|المستند)",),
)

_IMAGE_ZH = "(?:图片|图像|圖片|圖像|照片|影像|截图|截圖|附件)"
_CHINESE = Tongue(
    leads="很抱歉|非常抱歉|抱歉|对不起|對不起|不好意思|遗憾的是|遺憾的是|但是|但",
    blind=(
        f"(?:我)?(?:目前|暂时|暫時|现在)?(?:无法|無法|不能|没有办法|沒有辦法|没法|看不到|看不见|看不見|没有看到|沒有看到)"
        f".{{0,12}}{_IMAGE_ZH}",
        f"(?:您|你|这里|這裡)?(?:似乎|好像)?(?:没有|沒有|未|尚未|并未)(?:提供|上传|上傳|附上|收到).{{0,8}}{_IMAGE_ZH}",
        f"(?:该|此|这张|這張)?{_IMAGE_ZH}.{{0,6}}(?:无法|無法|未能|没有)(?:显示|顯示|加载|載入|上传|上傳)",
        "作[为為](?:一个|一個|一名)?(?:ai|人工智[能慧]|大型?[语語]言模型|[语語]言模型)",
        "我(?:只)?是(?:一个|一個)?(?:ai|人工智[能慧]|[语語]言模型)",
    ),
    declines=(
        "(?:我)?(?:无法|無法|不能)(?:提供|协助|帮助|帮|完成|回答|满足|協助|幫助|處理|处理).{0,20}",
        "(?:我)?(?:无法|無法|不能)(?:查看|读取|讀取|访问|打开|識別|识别).{0,12}(?:页面|頁面|文件|文档|文件|内容|內容)",
        f"请(?:您)?(?:重新)?(?:上传|提供).{{0,10}}{_IMAGE_ZH}",
    ),
)

_JAPANESE = Tongue(
    leads="大変申し訳(?:ありません|ございません)が?|申し訳(?:ありません|ございません)が?|すみません(?:が)?|残念ながら|恐れ入りますが",
    blind=(
        "(?:この|その|添付の|添付された|提供された|私は|私には)?(?:画像|写真|添付ファイル|イメージ)(?:を|は|が|の内容|に|が?添付).{0,25}"
        "(?:できません|見えません|ありません|いません|かねます|読み取れません|でき(?:ない|ず))",
        "(?:私は)?(?:ai|人工知能|言語モデル)(?:として|である|です|なので)",
    ),
    declines=(
        "(?:お手伝い|ご?対応|ご?回答|お答え|処理|お応え)(?:する(?:こと)?)?(?:は|を|が)?(?:できません|できかねます|いたしかねます)",
        "(?:この|その)?(?:ページ|ファイル|文書|ドキュメント)(?:を|は|が|の内容).{0,20}(?:できません|読み取れません|ありません)",
    ),
)

_IMAGE_KO = "(?:이미지|사진|그림|첨부 ?파일|첨부)"
_KOREAN = Tongue(
    leads="죄송합니다만|죄송합니다|죄송하지만|미안하지만|유감스럽게도|안타깝게도|하지만|그러나",
    blind=(
        f"(?:저는 |제가 |현재 )?(?:제공된 |첨부된 |이 |해당 )?{_IMAGE_KO}(?:를|을|가|이|는|은|에|의 내용을)?.{{0,20}}"
        "(?:수 없|수가 없|않|못)",
        "(?:저는 )?(?:ai|인공지능|언어 모델)(?:로서|이기 때문|이므로|이라)",
    ),
    declines=(
        "(?:저는 |제가 )?.{0,12}(?:도와드릴|도움을 드릴|답변할|답변드릴|처리할|제공할) 수(?:가)? 없",
        "(?:이 |해당 )?(?:페이지|파일|문서)(?:를|을|가|이|는|은)?.{0,15}(?:볼|읽을|열|확인할|처리할) 수(?:가)? 없",
    ),
)

SPACED = (
    _ENGLISH,
    _GERMAN,
    _FRENCH,
    _SPANISH,
    _PORTUGUESE,
    _ITALIAN,
    _DUTCH,
    _POLISH,
    _RUSSIAN,
    _TURKISH,
    _ARABIC,
)
"""Those that part their words."""
UNSPACED = (_CHINESE, _JAPANESE, _KOREAN)
