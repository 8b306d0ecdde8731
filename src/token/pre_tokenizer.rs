//! Pre-tokenizer: splits text into words before byte-level BPE merges them, by the name in `tokenizer.ggml.pre`.
//!
//! ```text
//! "llama-bpe" ──► PreTokenizerKind { patterns applied in order, ignore_merges, add_bos }
//! ```
//! Each pattern splits every piece of the previous one; matches and the text between them are kept as pieces. The patterns
//! are those of the models' own `tokenizer.json`; the names are llama.cpp's.

/// Settings of a named pre-tokenizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PreTokenizerKind {
    /// applied in order
    pub patterns: Vec<&'static str>,
    /// true if a word that is a token skips the merges
    pub ignore_merges: bool,
    /// true if models put BOS first, unless the file overrides it
    pub add_bos: bool,
    /// a notice for the user if the name is missing or unknown
    pub note: Option<String>,
}

macro_rules! contractions {
    () => {
        r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
    };
}
macro_rules! spaces {
    () => {
        r"\s*[\r\n]+|\s+(?!\S)|\s+"
    };
}
/// Capitals, then small letters: at least one small letter (`many_small`) or one capital (`many_capital`).
macro_rules! many_small {
    () => {
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    };
}
macro_rules! many_capital {
    () => {
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    };
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const DIGIT: &str = r"\p{N}";
const THREE_DIGITS: &str = "[0-9][0-9][0-9]";
const LLAMA3: &str = concat!(contractions!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|", spaces!());
const QWEN2: &str = concat!(contractions!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|", spaces!());
const QWEN35: &str =
    concat!(contractions!(), r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|", spaces!());
const SEED_CODER: &str = concat!(contractions!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|", spaces!());
const BAILING: &str = concat!(
    r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
);
const TEKKEN: &str = concat!(many_small!(), "|", many_capital!(), r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|", spaces!());
const GPT4O: &str = concat!(
    many_small!(),
    contractions!(),
    "?|",
    many_capital!(),
    contractions!(),
    r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|",
    spaces!()
);
const DEEPSEEK3: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"##,
    spaces!()
);
/// Letters of scripts with capitals.
const DEEPSEEK_LETTERS: &str = concat!(
    r"\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373}",
    r"\x{376}-\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}",
    r"\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}",
    r"\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}",
    r"\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}",
    r"\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}",
    r"\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}",
    r"\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}-\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}",
    r"\x{2CEB}-\x{2CEE}\x{2CF2}-\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}",
    r"\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}",
    r"\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}",
    r"\x{1E900}-\x{1E943}]+"
);
const DEEPSEEK_PUNCTUATION: &str = r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+";
const CJK: &str = r"[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+";
const HAN_AND_KANA: &str = r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+";
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
const SENTINELS: &str = "<sentinel:[0-9]+>";
const IMAGES: &str = "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z";
const TABS_AND_INDENTS: &str = "([\\t\\n]|    |  )";
const PUNCTUATION_MARK: &str = r"[\p{P}!-/:-@\[-`{-~]";

/// Settings of the pre-tokenizer of that name. A missing or unknown name gets a default and a note.
pub(super) fn pre_kind(name: Option<&str>) -> PreTokenizerKind {
    let Some(patterns) = patterns(name.unwrap_or("default")) else {
        let name = name.unwrap_or_default();
        let note = format!("The tokenizer's pre-tokenizer '{name}' is unknown. GPT-2's is used, so answers may be worse.");
        return PreTokenizerKind { patterns: vec![GPT2], ignore_merges: false, add_bos: false, note: Some(note) };
    };
    let note = "The tokenizer does not name its pre-tokenizer. The default one is used, so answers may be worse.";
    let llama3 = patterns == [LLAMA3] && !matches!(name, Some("dbrx" | "smaug-bpe" | "glm4" | "chatglm-bpe"));
    let named = name.unwrap_or_default();
    PreTokenizerKind {
        ignore_merges: llama3 || matches!(named, "tekken"),
        add_bos: llama3 || matches!(named, "tekken" | "chameleon"),
        note: name.is_none().then(|| note.to_owned()),
        patterns,
    }
}

fn patterns(name: &str) -> Option<Vec<&'static str>> {
    Some(match name {
        "default" => vec![r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", THREE_DIGITS],
        "gpt-2" | "gpt2" | "phi-2" | "jina-es" | "jina-de" | "jina-v2-es" | "jina-v2-de" | "jina-v1-en" | "jina-v2-code"
        | "roberta-bpe" | "gigachat" | "a.x-4.0" | "mellum" | "modern-bert" | "exaone4" | "mpt" | "olmo" | "jais"
        | "trillion" | "granite-docling" | "gpt-neox" => vec![GPT2],
        "starcoder" | "refact" | "command-r" | "smollm" | "codeshell" | "exaone" | "minerva-7b" => vec![DIGIT, GPT2],
        "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "falcon-h1" | "pixtral" | "midm-2.0" | "lfm2" | "jina-v5-nano"
        | "dbrx" | "smaug-bpe" | "glm4" | "chatglm-bpe" => vec![LLAMA3],
        "qwen2" | "deepseek-r1-qwen" | "kormo" | "f2llmv2" | "stablelm2" | "hunyuan" | "megrez" | "solar-open" | "grok-2" => {
            vec![QWEN2]
        }
        "qwen35" => vec![QWEN35],
        "deepseek-llm" => {
            vec!["[\r\n]", DEEPSEEK_LETTERS, DEEPSEEK_PUNCTUATION, r"\s+$", CJK, r"\p{N}+"]
        }
        "deepseek-coder" => vec!["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, DIGIT],
        "deepseek-v3" | "hunyuan-dense" | "joyai-llm" => vec![r"\p{N}{1,3}", HAN_AND_KANA, DEEPSEEK3],
        "falcon" => vec![r"[\p{P}\$\+<=>\^~\|`]+", GPT2, THREE_DIGITS],
        "poro-chat" | "bloom" | "gpt3-finnish" => vec![BLOOM],
        "viking" => vec![BLOOM, DIGIT],
        "tekken" => vec![TEKKEN],
        "gpt-4o" | "llama4" | "kanana2" | "talkie" | "minimax-m2" => vec![GPT4O],
        "superbpe" => vec![r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
        "bailingmoe" | "bailingmoe2" | "llada-moe" => vec![BAILING],
        "seed-coder" => vec![SEED_CODER],
        "chameleon" => vec![SENTINELS, IMAGES, TABS_AND_INDENTS, DIGIT, PUNCTUATION_MARK, GPT2],
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, SplitDelimiterBehavior};

    const NAMES: [&str; 30] = [
        "default",
        "gpt-2",
        "mpt",
        "jais",
        "gpt-neox",
        "starcoder",
        "refact",
        "command-r",
        "smollm",
        "exaone",
        "llama3",
        "llama-bpe",
        "dbrx",
        "qwen2",
        "qwen35",
        "deepseek-r1-qwen",
        "stablelm2",
        "deepseek-llm",
        "deepseek-coder",
        "deepseek-v3",
        "falcon",
        "bloom",
        "viking",
        "tekken",
        "gpt-4o",
        "superbpe",
        "bailingmoe",
        "seed-coder",
        "chameleon",
        "glm4",
    ];

    #[test]
    fn pre_kind_every_pattern_compiles() {
        for name in NAMES {
            let kind = pre_kind(Some(name));
            assert_eq!(kind.note, None, "{name}");
            for pattern in kind.patterns {
                let regex = SplitPattern::Regex(pattern.to_owned());
                assert!(Split::new(regex, SplitDelimiterBehavior::Isolated, false).is_ok(), "{name}: {pattern}");
            }
        }
    }

    #[test]
    fn pre_kind_unknown_or_missing_falls_back_with_a_note() {
        let unknown = pre_kind(Some("klingon"));
        assert_eq!(unknown.patterns, [GPT2]);
        assert!(unknown.note.unwrap().contains("'klingon'"));
        assert!(pre_kind(None).note.is_some());
        assert_eq!(pre_kind(None).patterns, pre_kind(Some("default")).patterns);
    }

    #[test]
    fn pre_kind_only_llama3_and_tekken_skip_merges() {
        let skips: Vec<_> = NAMES.into_iter().filter(|n| pre_kind(Some(n)).ignore_merges).collect();
        assert_eq!(skips, ["llama3", "llama-bpe", "tekken"]);
    }

    /// Splits `text` with the patterns of `name`.
    fn words(name: &str, text: &str) -> Vec<String> {
        let mut words = PreTokenizedString::from(text);
        for pattern in pre_kind(Some(name)).patterns {
            let regex = SplitPattern::Regex(pattern.to_owned());
            Split::new(regex, SplitDelimiterBehavior::Isolated, false).unwrap().pre_tokenize(&mut words).unwrap();
        }
        let words = words.get_splits(OffsetReferential::Original, OffsetType::Byte);
        words.into_iter().map(|(word, _, _)| word.to_owned()).collect()
    }

    #[test]
    fn pre_kind_words_differ_by_family() {
        let text = "We'LL pay 12345,\n\n  ok";
        for (name, want) in [
            ("gpt-2", vec!["We", "'", "LL", " pay", " 12345", ",", "\n\n ", " ok"]),
            ("smollm", vec!["We", "'", "LL", " pay", " ", "1", "2", "3", "4", "5", ",", "\n\n ", " ok"]),
            ("llama-bpe", vec!["We", "'LL", " pay", " ", "123", "45", ",\n\n", " ", " ok"]),
            ("qwen2", vec!["We", "'LL", " pay", " ", "1", "2", "3", "4", "5", ",\n\n", " ", " ok"]),
            ("falcon", vec!["We", "'", "LL", " pay", " ", "123", "45", ",", "\n\n ", " ok"]),
            ("deepseek-coder", vec!["We", "'", "LL", " pay", " ", "1", "2", "3", "4", "5", ",", "\n", "\n", " ", " ok"]),
            ("deepseek-llm", vec!["We", "'", "LL", " pay", " ", "12345", ",", "\n", "\n", " ", " ok"]),
            ("superbpe", vec!["We'LL pay ", "12", "345", ",\n\n  ok"]),
            ("gpt-4o", vec!["We'LL", " pay", " ", "123", "45", ",\n\n", " ", " ok"]),
        ] {
            assert_eq!(words(name, text), want, "{name}");
        }
        assert_eq!(words("tekken", " HTMLPage"), [" HTMLPage"]);
        assert_eq!(words("tekken", " pageTwo"), [" page", "Two"]);
        assert_eq!(words("deepseek-v3", "漢字kana"), ["漢字", "kana"]);
    }
}
