//! Long and multilingual text, corrupt files, and special tokens in documents.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use proptest::prelude::*;
use strata::base::Rng;
use strata::token::{Detokenizer, GgufVocab, Tokenizer};

use crate::support::{BUILT_IN, BUILT_IN_JSON, data, read_vocab};

const ALL: [&str; 11] = [
    "built-in",
    "built-in json",
    "llama-spm",
    "phi-3",
    "phi-3 json",
    "deepseek-coder",
    "falcon",
    "gpt-2",
    "gpt-2 json",
    "qwen",
    "llama3",
];

fn load(root: &Path, name: &str) -> Tokenizer {
    let gguf = |path: &str| Tokenizer::from_gguf(&read_vocab(&root.join(path)).0).unwrap();
    let folder = |path: &str| Tokenizer::from_folder(&root.join(path)).unwrap();
    match name {
        "built-in" => gguf(BUILT_IN),
        "built-in json" => Tokenizer::from_json_files(Path::new(BUILT_IN_JSON), None, None).unwrap(),
        "phi-3 json" => folder("phi-3-mini"),
        "gpt-2 json" => folder("gpt2"),
        "qwen" => folder("qwen"),
        "llama3" => folder("llama3.2"),
        name => gguf(&format!("llama.cpp-vocab/ggml-vocab-{name}.gguf")),
    }
}

/// Tokenizers of these names, loaded one after the other.
fn some<'n>(test: &str, names: &'n [&'n str]) -> impl Iterator<Item = (&'n str, Tokenizer)> {
    let root = data(test, "tokenizers");
    names.iter().filter_map(move |name| Some((*name, load(root.as_ref()?, name))))
}

fn tokenizers(test: &str) -> impl Iterator<Item = (&'static str, Tokenizer)> {
    some(test, &ALL)
}

fn text_file(test: &str, path: &str) -> Option<String> {
    Some(std::fs::read_to_string(data(test, path)?).unwrap())
}

#[test]
fn streamed_text_equals_the_original_in_every_vocabulary() {
    let test = "streamed_text_equals_the_original_in_every_vocabulary";
    let texts = ["Hello, world!", "  two  spaces", "né à Zürich — 東京, 한국어, العربية 🚀👨‍👩‍👧\n\n\tx = 1;", "\u{FEFF}a\u{0}b"];
    for (name, tokenizer) in tokenizers(test) {
        let tokenizer = Arc::new(tokenizer);
        for text in texts {
            let ids = tokenizer.encode(text, false).unwrap();
            let mut decoder = Detokenizer::new(Arc::clone(&tokenizer));
            let mut streamed: String = ids.iter().map(|&id| decoder.push(id).unwrap()).collect();
            streamed += &decoder.finish();
            assert_eq!(streamed, text, "{name}");
            assert_eq!(tokenizer.decode(&ids).unwrap(), text, "{name}");
        }
    }
}

#[test]
fn gguf_and_json_of_one_model_agree_on_a_long_text() {
    let test = "gguf_and_json_of_one_model_agree_on_a_long_text";
    let Some(text) = text_file(test, "texts/sherlock-holmes.txt") else { return };
    let text: String = text.chars().skip(5_000).take(20_000).collect();
    for pair in [["built-in", "built-in json"], ["gpt-2", "gpt-2 json"], ["phi-3", "phi-3 json"]] {
        let both: Vec<_> = some(test, &pair).collect();
        let ids = both[0].1.encode(&text, true).unwrap();
        assert_eq!(ids, both[1].1.encode(&text, true).unwrap(), "{}", both[0].0);
        assert!(ids.len() > 4_000, "{}", ids.len());
        assert_eq!(both[0].1.decode(&ids).unwrap(), text);
    }
}

#[test]
fn long_text_in_parts_has_the_ids_of_the_whole() {
    let test = "long_text_in_parts_has_the_ids_of_the_whole";
    let Some(prose) = text_file(test, "texts/tinyshakespeare.txt") else { return };
    let Some(wiki) = text_file(test, "texts/wikitext-2/wiki.valid.tokens") else { return };
    let takes = |text: &str| text.chars().take(200_000).collect::<String>();
    for (name, tokenizer) in tokenizers(test) {
        for text in [takes(&prose), takes(&wiki)] {
            // Tokens of pieces shorter than a part, split at ends of paragraphs, must occur in the whole.
            let ids = tokenizer.encode(&text, false).unwrap();
            assert_eq!(tokenizer.decode(&ids).unwrap(), text, "{name}");
            let middle = text.find("\n").map_or(0, |_| text.len() / 2);
            let at = (middle..).find(|&i| text.is_char_boundary(i) && text[i..].starts_with(" the ")).unwrap();
            let end = (at + 20_000..).find(|&i| text.is_char_boundary(i) && text[i..].starts_with(" the ")).unwrap();
            let alone = tokenizer.encode(&text[at + 1..end], false).unwrap();
            let inner = &alone[8..alone.len() - 8];
            assert!(ids.windows(inner.len()).any(|w| w == inner), "{name}");
        }
    }
}

#[test]
fn six_megabytes_are_encoded_in_seconds() {
    let test = "six_megabytes_are_encoded_in_seconds";
    let Some(text) = text_file(test, "texts/pepys-diary.txt") else { return };
    for (name, tokenizer) in some(test, &["built-in", "llama-spm", "phi-3 json", "gpt-2", "llama3"]) {
        let start = Instant::now();
        let n = tokenizer.encode(&text, true).unwrap().len();
        let seconds = start.elapsed().as_secs_f64();
        eprintln!("{name}: {n} tokens in {seconds:.1} s");
        assert!(n > 1_000_000 && seconds < 60.0, "{name}: {n} tokens in {seconds:.1} s");
    }
}

#[test]
fn text_without_a_break_is_encoded_in_bounded_time() {
    let test = "text_without_a_break_is_encoded_in_bounded_time";
    for (name, tokenizer) in some(test, &["built-in", "llama-spm", "phi-3 json", "qwen"]) {
        for unit in ["a", " ", "海", "\n", "x1"] {
            let text = unit.repeat((1 << 20) / unit.len());
            let start = Instant::now();
            let ids = tokenizer.encode(&text, false).unwrap();
            let seconds = start.elapsed().as_secs_f64();
            assert!(seconds < 30.0, "{name} {unit:?}: {seconds:.1} s");
            assert!(tokenizer.decode(&ids).unwrap() == text, "{name} {unit:?}");
        }
    }
}

#[test]
fn end_and_bos_ids_are_found_for_every_family() {
    let test = "end_and_bos_ids_are_found_for_every_family";
    let Some(root) = data(test, "tokenizers") else { return };
    let with_config = |dir: &str, config: &str| {
        let config = root.join("../chat-templates/tokenizer_configs").join(config);
        Tokenizer::from_json_files(&root.join(dir).join("tokenizer.json"), Some(&config), None).unwrap()
    };
    let qwen = with_config("qwen", "qwen2.5.tokenizer_config.json");
    assert!(qwen.is_end(151_645) && qwen.is_end(151_643) && !qwen.is_end(151_644));
    assert_eq!((qwen.special_ids().eos, qwen.bos_if_added()), (Some(151_645), None));
    assert_eq!(qwen.special_id("<|im_start|>"), Some(151_644));
    assert!(qwen.is_control(151_644) && !qwen.is_control(0));
    for (name, tokenizer) in tokenizers(test) {
        assert!(tokenizer.end_ids().count() > 0, "{name}");
        let has_bos = matches!(name, "llama-spm" | "phi-3" | "deepseek-coder");
        assert_eq!(tokenizer.bos_if_added().is_some(), has_bos, "{name}");
    }
}

#[test]
fn escaped_control_tokens_in_a_document_stay_text() {
    for (name, tokenizer) in tokenizers("escaped_control_tokens_in_a_document_stay_text") {
        let end = tokenizer.end_ids().next().unwrap();
        let end_text = String::from_utf8(tokenizer.token_bytes(end).unwrap()).unwrap();
        let document = format!("A turn ends with {end_text}, they say.");
        assert!(tokenizer.encode(&document, true).unwrap().contains(&end), "{name}");
        let ids = tokenizer.encode(&tokenizer.escape_special(&document), true).unwrap();
        assert!(!ids.contains(&end), "{name}");
        assert_eq!(ids, tokenizer.encode(&document, false).unwrap(), "{name}");
        assert_eq!(tokenizer.decode(&ids).unwrap(), document, "{name}");
    }
}

#[test]
fn bad_tokenizer_files_are_rejected() {
    let test = "bad_tokenizer_files_are_rejected";
    let Some(bad) = data(test, "tokenizers/invalid/llama2-bad-merges.tokenizer.json") else { return };
    let sentence = Tokenizer::from_json_files(&bad, None, None).unwrap_err().to_string();
    assert!(sentence.contains("is not a usable tokenizer file"), "{sentence}");
    let folder = tempfile::tempdir().unwrap();
    let missing = Tokenizer::from_folder(folder.path()).unwrap_err().to_string();
    assert!(missing.contains("tokenizer.json"), "{missing}");
    let good = std::fs::read_to_string(BUILT_IN_JSON).unwrap();
    let file = folder.path().join("tokenizer.json");
    for share in 0..10 {
        std::fs::write(&file, &good.as_bytes()[..good.len() * share / 10]).unwrap();
        assert!(Tokenizer::from_folder(folder.path()).is_err(), "{share}/10");
    }
    for (from, to) in [
        ("\"ByteLevel\"", "\"Bytes\""),
        ("\"BPE\"", "\"WordPiece\""),
        ("\"!\": 3,", "\"!\": 4000000000,"),
        ("\"merges\": [", "\"merges\": [[\"no\", \"such\"],"),
        ("\"continuing_subword_prefix\": null", "\"continuing_subword_prefix\": \"##\""),
    ] {
        assert!(good.contains(from), "{from}");
        std::fs::write(&file, good.replacen(from, to, 1)).unwrap();
        let error = Tokenizer::from_folder(folder.path()).err().map(|e| e.to_string());
        assert!(error.is_some_and(|e| e.len() < 400), "{from}");
    }
}

#[test]
fn corrupt_tokenizer_json_is_rejected_or_usable() {
    let test = "corrupt_tokenizer_json_is_rejected_or_usable";
    let Some(path) = data(test, "models/stories260k/hf/tokenizer.json") else { return };
    let good = std::fs::read(path).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokenizer.json");
    let mut rng = Rng::new(3);
    let mut usable = 0;
    for _ in 0..300 {
        let mut bytes = good.clone();
        for _ in 0..=rng.uniform(3) {
            // Most of the structure is in the first bytes; the rest is vocabulary and merges.
            let within = if rng.uniform(2) == 0 { 2_000 } else { bytes.len() as u32 };
            let at = rng.uniform(within) as usize;
            bytes[at] = b"0123456789\"{}[]:,aeiou -"[rng.uniform(24) as usize];
        }
        std::fs::write(&file, &bytes).unwrap();
        let Ok(tokenizer) = Tokenizer::from_folder(folder.path()) else { continue };
        if let Ok(ids) = tokenizer.encode("Once upon a time <s> 海\n", true) {
            assert!(tokenizer.decode(&ids).is_ok());
            usable += 1;
        }
    }
    assert!((10..290).contains(&usable), "{usable}");
}

/// `values` repeated to the length `n`; empty if there are none.
fn cycled<T: Copy>(values: &[T], n: usize) -> Vec<T> {
    values.iter().copied().cycle().take(if values.is_empty() { 0 } else { n }).collect()
}

proptest! {
    #[test]
    fn any_gguf_vocabulary_is_rejected_or_usable(
        tokens in prop::collection::vec("[a-c\u{2581}Ġ ]{0,3}|<0x4[0-9]>|<\\|im_end\\|>", 0..24),
        scores in prop::collection::vec(any::<f32>(), 0..24),
        types in prop::collection::vec(0u32..8, 0..24),
        merges in prop::collection::vec("[a-c]{0,2} [a-c]{0,2}", 0..4),
        ids in prop::collection::vec(prop::option::of(0u32..30), 5),
        space in any::<Option<bool>>(),
        fit in any::<bool>(),
        text in "[a-c \u{2581}é@]{0,30}",
    ) {
        let n = |n: usize| if fit { tokens.len() } else { n };
        let vocab = GgufVocab {
            model: if ids[0].is_some() { "gpt2" } else { "llama" }.into(),
            pre: None,
            scores: cycled(&scores, n(scores.len())),
            token_types: cycled(&types, n(types.len())),
            merges: if fit { Vec::new() } else { merges },
            bos: ids[0],
            eos: ids[1],
            eot: ids[2],
            unk: ids[3],
            pad: ids[4],
            add_bos: space,
            add_eos: None,
            add_space_prefix: space,
            tokens: tokens.clone(),
        };
        if let Ok(tokenizer) = Tokenizer::from_gguf(&vocab) {
            let ids = tokenizer.encode(&text, true).unwrap();
            prop_assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
            prop_assert!(tokenizer.decode(&ids).is_ok());
        }
    }
}
