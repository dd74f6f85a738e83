"""Words the guard knows, by what they do in a sentence, in a dozen languages."""

from __future__ import annotations

PHRASES = {
    "e-mail": "email",
    "from now on": "henceforth",
    "from this point": "henceforth",
    "from here on": "henceforth",
    "from this moment": "henceforth",
    "going forward": "henceforth",
    "in the future": "henceforth",
    "in future": "henceforth",
    "all future": "henceforth",
    "no longer": "nolonger",
    "any longer": "nolonger",
    "any more": "nolonger",
    "never mind": "disregard",
    "pay no attention": "disregard",
    "pay no heed": "disregard",
    "set aside": "disregard",
    "put aside": "disregard",
    "let go of": "disregard",
    "no matter": "regardless",
    "even if": "regardless",
    "precedence over": "overrides",
    "each time": "whenever",
    "every time": "whenever",
    "any time": "whenever",
    "next time": "whenever",
    "do anything now": "dan",
    "word for word": "verbatim",
    "as it is": "verbatim",
    "line by line": "verbatim",
    "api key": "apikey",
    "access key": "apikey",
    "private key": "apikey",
    "ssh key": "apikey",
    "the keys": "apikey",
    "card number": "creditcard",
    "role play": "roleplay",
    "so far": "previously",
    "up to now": "previously",
    "until now": "previously",
    "signed off": "approved",
    "go ahead": "permission",
    "system message": "sysprompt",
    "broken free": "freed",
    "break free": "freed",
    "two factor": "2fa",
    "two-factor": "2fa",
    "auto-approve": "autoapprove",
    "in character": "roleplay",
    "stands for": "roleplay",
    "as if": "like",
    "opted out": "skip",
    "give up": "abandon",
    "throw away": "discard",
    "get rid of": "discard",
    "move away from": "abandon",
    "stop being": "unbecome",
    "pre-approved": "preapproved",
}
"""Turns of phrase that count as one word."""

WORDS = {
    # Setting orders aside
    "discard": """ignore ignores ignoring disregard disregarding forget forgetting neglect dismiss
        discard abandon drop omit skip bypass bypassing override overriding overrule overwrite
        circumvent nullify erase unlearn scrap break breach violate defy disobey reset shed
        nevermind regardless irrespective despite notwithstanding
        supersede supersedes overrides replaces ignoriere* missachte vergiss vergesst oublie*
        ignorez ignora ignoren ignorad olvida olvide olviden dimentica* ignorate tralascia esqueca*
        ignorem desconsidere negeer vergeet zignoruj ignoruj zapomnij ignorera glom ignorer glem
        игнорируй* проигнорируй* забудь* 忽略 无视 忘记 忘掉 不要理会 無視 忽視 忘れ 무시 잊어""",
    "discard_last": "ignorieren vergessen missachten 無視 忘れ yok gormezden unut 무시 잊어",
    "regardless": "regardless irrespective despite",
    "delete": "delete erase forget remove discard purge wipe",
    "follow": """follow following obey obeying adhere comply heed abide observe conform respect
        befolge* befolgen suis suivez respecte sigue sigas obedece segui siga
        следуй* 遵守 遵循 听从 従う 従わ""",
    "obey": "obey obeys obeying comply complies complying serve serves reprogrammed",
    "not": """not never dont doesnt cannot no nor neither nobody nothing nicht kein* pas ne n jamais
        non mai nao nunca niet nooit nie не нет никогда 不 别 勿""",
    "stop": "stop cease quit stopp arrete* deja smetti pare przestan перестань 停止",
    "void": """void revoked cancelled canceled invalid obsolete outdated lifted suspended disabled
        superseded overridden rescinded deactivated nullified off null nolonger expired waived
        binds irrelevant changed removed dropped over skipped unnecessary abolished repealed
        scrapped fake joke false meaningless aufgehoben ungultig annule* anuladas""",
    "unbecome": "unbecome",
    "apply": "apply applies bind binds count counts matter matters",
    "opposite": "opposite contrary decoy",
    "release": "release free exempt liberate unbind",
    # What is set aside
    "guidance": """instruction instructions directive directives guideline guidelines rule rules
        guidance programming constraint constraints restriction restrictions guardrail guardrails
        safeguard safeguards directions policy policies limitations boundaries obligations
        anweisung* instruktion* regel* richtlini* vorgabe* consigne* regle regles instruccion*
        regla reglas directrices istruzion* regole regola direttive instrucoes instrucao regras
        regra diretrizes instructies instrukcj* polecen* zasad zasady инструкц* правил* указани*
        talimat* kurallar* 指令 指示 规则 規則 规定 指南 ルール 命令 지시 명령 규칙 지침""",
    "prompt": """prompt prompts promt sysprompt systemprompt промпт* подсказк* istem* 提示词 提示
        プロンプト 프롬프트""",
    "weak": """request requests message messages context conversation text texts input inputs
        command commands order orders task tasks training content words sentence list dialog
        dialogue paragraph mission objective goal role purpose job behaviour behavior question
        befehl* ordenes ordres demande* ordini comandos""",
    "everything": "everything anything whatever alles tout todo tudo tutto wszystko 一切",
    "prior": """previous previously prior above earlier preceding former foregoing aforementioned
        initial initially original existing preexisting before beginning current past old vorherig*
        bisherig* obig* fruher* vorangegangen* zuvor bisher precedent* dessus anterior* previa*
        previo* antes arriba acima sopra vorige eerdere bovenstaande poprzedni* powyzsz* предыдущ*
        прежн* раньше выше tidigare onceki yukaridaki 之前 以前 上面 以上 先前 前面 上述 これまで
        前の 上記 이전 위의 앞선""",
    "above": "above foregoing preceding",
    "told": """told given received gave got instructed programmed taught trained asked bekommen
        erhalten gesagt dieron dijeron donnees recu state date dati dadas deram dali дали
        получил*""",
    "all": """all any entire alle allen samtlich* tous toutes toute todas todos tutte tutti
        wszystkie все всех alla tum 所有 全部 任何 すべて 全て 모든""",
    "each": "each every jede* chaque cada ogni elke kazd* кажд*",
    "other": "other others contradict contradicting conflicting older else",
    "rest": "rest remainder",
    "limits": """limits limit restrictions restriction constraints filters filter filtering
        censorship boundaries moderation guardrails safeguards ethics ethical morals moral norms
        disclaimers refusals refusal confines limitations""",
    "safety": "safety content security ethical firewall antivirus moderation",
    "training": "training programming",
    # Who is meant
    "your": """your yours thy deine* ihre* dein ton tes ta votre vos tus tu tuo tue tuoi suas seus
        teus jouw uw twoj* твои* твой свои* ваш* 你的 您的 あなたの""",
    "you": """you u thee yourself du dir dich vous toi te usted ti tebe ты тебе вы вам 你 您
        あなた""",
    "i": "i",
    "agent": """assistant ai agent agents chatbot llm gpt chatgpt claude gemini copilot
        assistants llms""",
    "model": "model models bot bots",
    "user": "user users customer customers client someone anyone anybody people human humans",
    "system": """system sistema systeme systemowy системн* 系统 システム 시스템 developer developers
        creator operator""",
    "authority": """admin administrator administrators security management manager ceo cto
        compliance legal lawyers owner operator operators developer developers anthropic openai
        finance team supervisor user it creator""",
    "admin": "admin administrator administrators root superuser owner privileged",
    "access": "access rights privileges clearance",
    # Small words
    "are": "are is am be been being was were re bist est sei jestes",
    "as": "as like",
    "what": "what whats which",
    "this": "this these it following below",
    "thisone": "this",
    "following": "following below",
    "now": "now nun jetzt maintenant ahora adesso ora agora nu teraz теперь сейчас 现在 今から",
    "new": """new updated real actual true revised only neue* nouvelle* nouveau nueva* nuevo* nuove
        nuova nova* novo* nieuwe nowe нов* 新的 新しい""",
    "real": "real actual true",
    "free": "without free freed beyond ohne sans sin senza sem bez без",
    "must": "must shall should will may can could might",
    "from": "from",
    "only": "only solely just nothing alone",
    "instead": "instead rather changed replaced",
    "first": "first instead",
    "before": "before",
    "start": "start starts begin begins follow follows",
    "need": "need needs needed required necessary",
    "times": "times",
    "number": "bc1",
    # Roles
    "unbound": """unrestricted unfiltered uncensored limitless jailbroken jailbreak
        unconstrained unshackled amoral omniscient unchained dan""",
    "illicit": """illegal unethical immoral harmful amoral hateful unlawful dangerous offensive
        legality ethics ethical morality consequences""",
    "mode": "mode modus modo",
    "devmode": """developer debug debugging god root sudo maintenance experimental diagnostic admin
        unsafe dev hacker training""",
    "enable": """enable enabled enter activate activated engage entering initiate simulate unlock
        unlocked""",
    "disable": """disable disables deactivate turn switch switched suspend remove lift unlock shut
        deaktiviere* desactive* desactiva* disattiva* desative* отключи* 关闭 禁用 無効""",
    "pretend": """pretend act roleplay imagine behave simulate impersonate acting operating immerse
        emulate""",
    "roleplay": "roleplay",
    "refusal": """refusal refusals disclaimer disclaimers apologies apology hesitation moralizing
        warnings""",
    "barred": "blocked forbidden banned disallowed false no not never",
    "block": "blocked forbidden banned disallowed",
    "refuse": "refuse refuses deny decline apologize apologise",
    "reading": "reading processing parsing summarizing summarising retrieving seeing",
    "dear": "dear hey attention hello",
    "instruct": "instruct command order tell say says said tells instructed direct",
    "reprogrammed": "reprogrammed rewired repurposed",
    "update": "update override notice alert upgrade",
    # Laying bare
    "reveal": """reveal revealing disclose leak divulge expose dump recite exfiltrate zeige*
        affiche* revele* revela* muestra* mostra* rivela* visa toon pokaz* ujawnij* выведи*
        покажи* раскрой* 告诉 显示 透露 输出 教え 表示 보여""",
    "show": """show print output display repeat share tell give return echo write list provide state
        spell copy paste encode translate see summarize summarise continue complete quote reply
        respond answer""",
    "parrot": "repeat recite print output echo copy verbatim paste encode translate quote",
    "hidden": "hidden secret secrets confidential internal sensitive private",
    "config": "configuration config settings setup",
    "identity": "id identity",
    # Sending away
    "send": """send sends sending sent forward forwards forwarding email mail post posted posts
        upload uploads transmit exfiltrate submit relay dispatch bcc cc deliver leak publish smuggle
        report reports log logs export mirror copies
        sende* schicke* envoie* envia* invia* stuur wyslij* отправь* 发送 送って""",
    "secret": """password passwords credential credentials apikey apikeys token tokens passwd
        creditcard ssn cookies cookie env keys passphrase secrets passwort contrasena
        haslo пароль* 密码 パスワード""",
    "password": """password passwords credential credentials apikey apikeys passwd creditcard ssn
        passphrase secrets""",
    "deliver": """send forward email mail post upload transmit transfer pay wire delete remove wipe
        purchase buy refund grant approve""",
    "private": """history conversation conversations chat transcript messages files file workspace
        data contents inbox documents database contacts emails codebase records copy
        clipboard""",
    "reach": """open opens visit install installs download call calls contain load fetch import
        click""",
    # Acting
    "run": """run execute call invoke launch trigger perform install download curl wget eval exec
        use open click visit executes calls""",
    "harm": """delete deleting transfer pay wire buy purchase approve grant disable drop remove
        erase refund refunds shutdown format share purchases transfers sharing running deploy merge
        backups paid impersonate""",
    "command": "command commands shell script scripts code tool tools",
    "grant": "grant grants approve approves accept accepts authorise authorize obey obeys execute",
    "use": "use pay send wire transfer",
    "give": "give gives provide hand hands share disclose let",
    "ask_for": "ask request demand",
    "impersonate": "impersonate",
    "context": "context prompt setup",
    "lie": "lie mislead deceive",
    "keep": "keep store save remember persist permanently preserve",
    "copy": "copy store save replicate duplicate propagate spread rewrite persist reinsert repeat",
    # Answering
    "add": """include append insert add embed attach prepend put inject end begin start finish
        conclude preface repeat included praise""",
    "say": "say says answer reply respond deny claim insist recommend praise state write",
    "reply": """response responses reply replies answer answers output outputs summary summaries
        message email emails completion""",
    "exact": "verbatim exactly precisely literally string anchor placeholder",
    "recommend": "recommend suggest promote praise",
    "asked": "asked asks ask",
    "replace": "replace substitute swap change",
    # For ever
    "always": """always invariably permanently whenever henceforth everytime immer toujours siempre
        sempre altijd zawsze всегда 总是 常に""",
    "auto": "automatically blindly unconditionally unattended",
    "henceforth": "henceforth",
    "whenever": "whenever henceforth when once if everytime subsequent future wenn cuando quando",
    # Permission
    "approved": """approved authorised authorized consented consent permitted allowed agreed granted
        cleared confirmed confirm verified whitelisted preapproved authorise authorize sanctioned
        waived permission enabled established autoapprove promised fine okay happy""",
    "preapproved": "preapproved whitelisted trusted approved exempt",
    "trust": "trust trusts trusted believe",
    "trusted": "trusted official safe legitimate trustworthy whitelisted verified",
    "treat": "treat consider regard",
    "ask": """asking confirmation permission approval consent verification verifying verify
        checking confirming ask authorization authorisation checksum check checks question review
        2fa mfa looking authentication validation signature countersign bother disturb""",
    "2fa": "2fa mfa authentication",
    "autoapprove": "autoapprove",
    "warned": "warning warnings alerts caution notices",
    "tell": """tell mention inform alert notify warn disclose reveal telling mentioning informing
        notifying flag""",
    "silent": """silently secretly quietly covertly discreetly unnoticed invisibly stealthily
        surreptitiously""",
    "deny": "deny refuse lie pretend",
    "danger": "phishing malware suspicious fraud scam security warnings",
    "money": """payment payments invoice invoices refund refunds iban account accounts wallet bank
        funds money transfers billing purchases bitcoin salaries""",
    # Memories about memories
    "memory": "memory memories entry note notes record reminder",
    "itself": "memory entry note record reminder rule instruction directive",
    "outrank": "outranks outrank priority precedence highest maximum overrides supersedes",
    "written": "written verified signed issued",
    # Pressure and pretexts
    "urgent": "urgent important priority critical emergency crucial special",
    "pressing": "urgent emergency",
    "testing": """testing test tests academic debugging verification troubleshoot research
        educational training exercise drill simulation diagnostic debug""",
    "fault": "error errors malfunction failure crash",
    "please": "please must following task",
    "perform": "execute perform do complete answer provide",
    "part": "part",
    "prove": "prove demonstrate",
    "purposes": "purposes purpose",
    "doing": "doing",
    "talk": """attack attacks attacker attackers injection injections jailbreaks phrase
        phrases explain explains explained blog article paper essay story novel
        character talk talks detect detects classifier flags flag regex why how classic
        homework means meant quoted ctf protect defend defence defense prevent
        lecture such wrote writing slide slides tries trying poisoning covered""",
}
"""Words and, with a star, beginnings of words, by sort; a word may be of several."""
