//! Token ids against llama.cpp's golden pairs, and against the ids that trained models were run with.

use std::path::Path;

use strata::token::{TokenError, Tokenizer};

use crate::support::{data, read_vocab};

const VOCABS: &str = "tokenizers/llama.cpp-vocab";

fn from_gguf(path: &Path) -> Tokenizer {
    Tokenizer::from_gguf(&read_vocab(path).0).unwrap()
}

/// (text, ids) of `ggml-vocab-NAME.gguf.inp` and `.out`.
fn pairs(folder: &Path, name: &str) -> Vec<(String, Vec<u32>)> {
    let read = |end: &str| std::fs::read_to_string(folder.join(format!("ggml-vocab-{name}.gguf.{end}"))).unwrap();
    let texts = read("inp");
    let texts = texts.strip_suffix("\n__ggml_vocab_test__\n").unwrap_or(&texts);
    let texts: Vec<String> = texts.split("\n__ggml_vocab_test__\n").map(str::to_owned).collect();
    let ids = read("out");
    let ids: Vec<Vec<u32>> = ids.lines().map(|line| line.split_whitespace().map(|id| id.parse().unwrap()).collect()).collect();
    assert_eq!(texts.len(), ids.len(), "{name}");
    texts.into_iter().zip(ids).collect()
}

fn check_pairs(folder: &Path, name: &str, tokenizer: &Tokenizer) {
    let pairs = pairs(folder, name);
    assert!(pairs.len() > 40, "{name}");
    let wrong: Vec<String> = pairs
        .into_iter()
        .filter_map(|(text, want)| {
            let got = tokenizer.encode(&text, false).unwrap();
            (got != want).then(|| format!("{text:?}\n  want {want:?}\n  got  {got:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{name}: {} wrong\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn golden_pairs_of_every_gguf_vocabulary_agree() {
    let Some(folder) = data("golden_pairs_of_every_gguf_vocabulary_agree", VOCABS) else { return };
    for name in ["gpt-2", "falcon", "starcoder", "deepseek-coder", "llama-spm", "phi-3"] {
        check_pairs(&folder, name, &from_gguf(&folder.join(format!("ggml-vocab-{name}.gguf"))));
    }
}

#[test]
fn golden_pairs_of_every_tokenizer_json_agree() {
    let Some(folder) = data("golden_pairs_of_every_tokenizer_json_agree", VOCABS) else { return };
    let siblings = [
        ("llama3.2", "llama-bpe"),
        ("qwen", "qwen2"),
        ("qwen", "deepseek-r1-qwen"),
        ("gpt2", "gpt-2"),
        ("phi-3-mini", "phi-3"),
        ("falcon", "falcon"),
        ("roberta-base", "roberta-bpe"),
    ];
    for (dir, name) in siblings {
        let tokenizer = Tokenizer::from_folder(&folder.join("..").join(dir)).unwrap();
        check_pairs(&folder, name, &tokenizer);
    }
}

#[test]
fn gguf_without_a_named_pre_tokenizer_loads_with_a_note() {
    let Some(folder) = data("gguf_without_a_named_pre_tokenizer_loads_with_a_note", VOCABS) else { return };
    let tokenizer = from_gguf(&folder.join("ggml-vocab-gpt-neox.gguf"));
    assert_eq!(tokenizer.notes().len(), 1);
    let ids = tokenizer.encode("Hello world, 1234 pages\n", false).unwrap();
    assert_eq!(tokenizer.decode(&ids).unwrap(), "Hello world, 1234 pages\n");
}

#[test]
fn bert_vocabulary_is_rejected() {
    let Some(folder) = data("bert_vocabulary_is_rejected", VOCABS) else { return };
    let error = Tokenizer::from_gguf(&read_vocab(&folder.join("ggml-vocab-bert-bge.gguf")).0).unwrap_err();
    assert!(matches!(error, TokenError::UnsupportedKind { ref kind } if kind == "bert"), "{error}");
}

#[test]
fn prompts_of_trained_models_have_llama_cpp_ids() {
    let Some(folder) = data("prompts_of_trained_models_have_llama_cpp_ids", "models") else { return };
    let golden: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("golden-greedy-llamacpp.json")).unwrap()).unwrap();
    let mut n = 0;
    for (file, case) in golden["cases"].as_object().unwrap() {
        let tokenizer = from_gguf(&folder.join(file));
        let mut ids: Vec<u32> = tokenizer.bos_if_added().into_iter().collect();
        ids.extend(tokenizer.encode(case["prompt"].as_str().unwrap(), false).unwrap());
        let want: Vec<u32> = serde_json::from_value(case["prompt_ids"].clone()).unwrap();
        assert_eq!(ids, want, "{file}");
        let answer: Vec<u32> = serde_json::from_value(case["greedy_ids"].clone()).unwrap();
        let text = case["text"].as_str().unwrap();
        assert_eq!(tokenizer.decode(&answer).unwrap().trim_start(), text.trim_start(), "{file}");
        n += 1;
    }
    assert!(n >= 10, "{n}");
}

#[test]
fn folder_and_gguf_of_one_model_agree() {
    let Some(models) = data("folder_and_gguf_of_one_model_agree", "models") else { return };
    let pairs = [
        ("stories260k/hf", "stories260k/stories260K-F16.gguf"),
        ("stories3m/hf", "stories3m/stories3M-F16.gguf"),
        ("tinystories-656k", "tinystories-656k/TinyStories-656K-F16.gguf"),
        ("cardputer-chat-3m/hf-gptneo", "cardputer-chat-3m/cardputer-chat-3m-gpt2arch-Q8_0.gguf"),
    ];
    for (folder, file) in pairs {
        let (a, b) = (Tokenizer::from_folder(&models.join(folder)).unwrap(), from_gguf(&models.join(file)));
        assert_eq!(a.vocab_size(), b.vocab_size(), "{folder}");
        for text in ["Once upon a time, there was a boy named Tim.\n\nHe said: \"Hi!\"", " 12  34", "é 海 🚀", "", " ", "<s>"]
        {
            let ids = a.encode(text, false).unwrap();
            assert_eq!(ids, b.encode(text, false).unwrap(), "{folder}: {text:?}");
            assert_eq!(a.decode(&ids).unwrap(), b.decode(&ids).unwrap(), "{folder}: {text:?}");
        }
        let ends: Vec<u32> = a.end_ids().collect();
        assert!(!ends.is_empty() && ends.iter().all(|&id| b.is_end(id)), "{folder}: {ends:?}");
        assert_eq!(a.bos_if_added(), b.bos_if_added(), "{folder}");
    }
}

#[test]
fn built_in_model_tokenizes_like_its_tokenizer_json_and_ignores_line_breaks() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
    let json = Tokenizer::from_json_files(&folder.join("demo-model/tokenizer.json"), None, None).unwrap();
    let gguf = from_gguf(&folder.join("demo-model/strata-quote-Q8_0.gguf"));
    assert_eq!(json.vocab_size(), gguf.vocab_size());
    let text = std::fs::read_to_string(folder.join("sample-document.md")).unwrap();
    for text in [text.as_str(), " 12  3,456\n\n    x = 'é 海 🚀';", "", " "] {
        let ids = gguf.encode(text, false).unwrap();
        assert_eq!(ids, json.encode(text, false).unwrap(), "{text:?}");
        assert_eq!(gguf.decode(&ids).unwrap(), text);
    }
    let pieces = |text: &str| -> Vec<String> {
        let ids = gguf.encode(text, false).unwrap();
        let texts = ids.iter().map(|id| gguf.decode(&[*id]).unwrap().trim().to_owned());
        texts.filter(|text| !text.is_empty()).collect()
    };
    let paragraphs = text.split("\n\n").filter(|p| p.is_ascii() && !p.starts_with(['#', '|', '`', '-', '*', ' ']));
    let mut n = 0;
    for paragraph in paragraphs {
        assert_eq!(pieces(&paragraph.replace(' ', "\n")), pieces(paragraph));
        n += 1;
    }
    assert!(n > 10, "{n} paragraphs");
}
