//! GGUF files, valid and corrupt. Each corrupt one is rejected with a message: no panic, no large allocation.

use proptest::prelude::*;
use strata::model::arch::plan::{Matrix, TensorRef};
use strata::model::gguf::{Gguf, Value};
use strata::model::{ModelError, ModelFile, TensorType, TokenizerSource};

use super::gguf_writer::{Val, Writer, tiny_llama};
use super::max_allocation::largest_allocation;

const ENOUGH_BYTES: usize = 64 << 10;

fn open(bytes: Vec<u8>) -> Result<ModelFile, ModelError> {
    open_watched(bytes).0
}

/// Opens bytes; returns the size of the largest allocation, too.
fn open_watched(bytes: Vec<u8>) -> (Result<ModelFile, ModelError>, usize) {
    let bytes = Box::leak(bytes.into_boxed_slice());
    largest_allocation(|| ModelFile::from_static(bytes))
}

/// Error message for these bytes.
fn refusal(bytes: Vec<u8>) -> String {
    let (result, largest) = open_watched(bytes);
    assert!(largest < ENOUGH_BYTES, "allocated {largest} bytes");
    match result {
        Ok(_) => panic!("opened a broken file"),
        Err(error) => error.to_string(),
    }
}

fn broken(change: impl FnOnce(&mut Writer)) -> String {
    let mut writer = tiny_llama();
    change(&mut writer);
    refusal(writer.bytes())
}

fn assert_contains(sentence: &str, parts: &[&str]) {
    for part in parts {
        assert!(sentence.contains(part), "'{sentence}' does not contain '{part}'");
    }
}

/// Reads all tensors of the plan.
fn read_all(file: &ModelFile) {
    for matrix in file.plan().matrices() {
        let weights = file.matrix_f32(matrix).unwrap();
        assert_eq!(weights.len(), matrix.rows * matrix.cols);
        assert_eq!(file.bias(matrix).unwrap().map_or(matrix.rows, |bias| bias.len()), matrix.rows);
    }
    for name in file.plan().vectors() {
        assert!(!file.vector(name).unwrap().is_empty());
    }
}

#[test]
fn tiny_gguf_of_both_versions_opens_and_gives_its_weights() {
    for version in [2, 3] {
        let mut writer = tiny_llama();
        writer.version = version;
        let file = open(writer.bytes()).unwrap();
        read_all(&file);
        let dims = &file.plan().dims;
        assert_eq!((dims.n_layer, dims.hidden_dim, dims.vocab_size, dims.n_kv_head), (1, 32, 5, 1));
        assert!(file.plan().tied);
        assert_eq!(file.info().name, "tiny");
        assert_eq!(file.info().quantization, "F32");
        assert_eq!(file.tensor("blk.0.ffn_up.weight").unwrap().ty, TensorType::Q8_0);
        let TokenizerSource::Gguf(vocab) = file.tokenizer().unwrap() else { panic!("a GGUF has its own vocabulary") };
        assert_eq!((vocab.tokens.len(), vocab.bos, vocab.add_bos), (5, Some(1), Some(true)));
        assert_eq!(vocab.token_types, [2, 3, 3, 1, 1]);
        assert_eq!(vocab.scores[4], -2.0);
    }
}

#[test]
fn tensor_bytes_are_exactly_the_requested_rows() {
    let writer = tiny_llama();
    let file = open(writer.bytes()).unwrap();
    let part = |name: &str, first_row, n_rows| TensorRef { name: name.to_owned(), first_row, n_rows, transposed: false };
    let source = |name: &str| writer.tensors.iter().find(|t| t.name == name).unwrap().data.clone();
    let rows = file.tensor_bytes(&part("blk.0.ffn_up.weight", 3, 2)).unwrap();
    assert_eq!(&*rows, &source("blk.0.ffn_up.weight")[3 * 34..5 * 34]);
    let rows = file.tensor_bytes(&part("blk.0.attn_k.weight", 15, 1)).unwrap();
    assert_eq!(&*rows, &source("blk.0.attn_k.weight")[15 * 64..]);
    assert!(file.tensor_bytes(&part("blk.0.attn_k.weight", 15, 2)).is_err());
    assert!(file.tensor_bytes(&part("blk.0.attn_k.weight", usize::MAX, 2)).is_err());
    assert!(file.tensor_bytes(&part("nothing", 0, 1)).is_err());
    let turned = TensorRef { transposed: true, ..part("blk.0.attn_k.weight", 1, 2) };
    let turned = file.tensor_bytes(&turned).unwrap();
    let stored = source("blk.0.attn_k.weight");
    let want: Vec<u8> =
        [1, 2].iter().flat_map(|c| (0..16).flat_map(|r| stored[r * 64 + c * 2..][..2].to_vec()).collect::<Vec<_>>()).collect();
    assert_eq!(&*turned, want);
    let quantized = TensorRef { transposed: true, ..part("blk.0.ffn_up.weight", 0, 1) };
    assert!(file.tensor_bytes(&quantized).is_err());
}

#[test]
fn gate_and_up_are_interleaved_row_by_row() {
    let file = open(tiny_llama().bytes()).unwrap();
    let up: &Matrix = &file.plan().layers[0].ffn_up;
    assert!(up.interleave_halves);
    let both = file.matrix_f32(up).unwrap();
    let (gate, up) = (file.vector("blk.0.ffn_gate.weight").unwrap(), file.vector("blk.0.ffn_up.weight").unwrap());
    for row in 0..64 {
        assert_eq!(both[2 * row * 32..][..32], gate[row * 32..][..32]);
        assert_eq!(both[(2 * row + 1) * 32..][..32], up[row * 32..][..32]);
    }
}

#[test]
fn gguf_truncated_anywhere_is_rejected() {
    let writer = tiny_llama();
    let whole = writer.bytes();
    let header = writer.header().len();
    for n in (0..header + 64).chain((header..whole.len()).step_by(97)).chain([whole.len() - 1]) {
        let sentence = refusal(whole[..n].to_vec());
        assert_contains(&sentence, &["truncated", "Download the file again"]);
    }
}

#[test]
fn counts_and_lengths_beyond_the_file_are_rejected() {
    for n in [u64::MAX, 1 << 63, 1 << 32, 1 << 24, 100_000] {
        assert_contains(&broken(|w| w.n_tensors = Some(n)), &["number of tensors"]);
        assert_contains(&broken(|w| w.n_meta = Some(n)), &["number of metadata entries"]);
        let counted = |ty: u32| [ty.to_le_bytes().to_vec(), n.to_le_bytes().to_vec()].concat();
        assert_contains(&broken(|w| w.set("x.list", Val::Raw(9, counted(4)))), &["elements of 'x.list'"]);
        assert_contains(&broken(|w| w.set("x.texts", Val::Raw(9, counted(8)))), &["elements of 'x.texts'"]);
    }
    // Counts that fit the file, but whose entries do not.
    for n in [24 + (4 << 8), 1500] {
        assert!(broken(|w| w.n_meta = Some(n)).contains("metadata"));
    }
    for n in [u64::MAX, 1 << 63, 1 << 40, 100_000] {
        assert_contains(&broken(|w| w.set("x.text", Val::Raw(8, n.to_le_bytes().to_vec()))), &["x.text", "truncated"]);
    }
    let long_key = broken(|w| w.meta.push(("k".repeat(100_000), Val::U32(1))));
    assert_contains(&long_key, &["the length of key", "at most 65535"]);
}

#[test]
fn invalid_tensor_shapes_are_rejected() {
    let shape = |shape: &[u64]| broken(|w| w.tensor("token_embd.weight").shape = shape.to_vec());
    assert_contains(&shape(&[]), &["number of dimensions", "token_embd.weight", "between 1 and 4"]);
    assert_contains(&shape(&[1; 5]), &["number of dimensions"]);
    assert_contains(&shape(&[5, 0]), &["the shape of tensor 'token_embd.weight'"]);
    assert_contains(&shape(&[u64::MAX, 2]), &["the shape of tensor 'token_embd.weight'"]);
    assert_contains(&shape(&[1 << 32, 1 << 32]), &["the shape of tensor 'token_embd.weight'"]);
    assert_contains(&shape(&[1 << 31, 1 << 31]), &["token_embd.weight"]);
    assert_contains(&shape(&[1 << 40, 32]), &["truncated", "token_embd.weight"]);
    let ragged = broken(|w| w.tensor("blk.0.ffn_up.weight").shape = vec![64, 31]);
    assert_contains(&ragged, &["blk.0.ffn_up.weight", "multiple of 32", "Q8_0"]);
}

#[test]
fn invalid_tensor_offsets_are_rejected() {
    let offset = |offset: u64| broken(|w| w.tensor("blk.0.attn_q.weight").offset = Some(offset));
    assert_contains(&offset(33), &["offset of tensor 'blk.0.attn_q.weight'", "multiple of the alignment 32"]);
    assert_contains(&offset(u64::MAX - 31), &["blk.0.attn_q.weight", "inside the file"]);
    assert_contains(&offset(1 << 40), &["truncated", "blk.0.attn_q.weight"]);
    assert_contains(&offset(0), &["'token_embd.weight'", "'blk.0.attn_q.weight'", "overlap"]);
}

#[test]
fn duplicate_keys_and_tensors_are_rejected() {
    assert_contains(&broken(|w| w.meta.push(("general.name".into(), Val::U32(1)))), &["'general.name' twice"]);
    let twice = broken(|w| {
        let again = w.tensor("output_norm.weight").clone();
        w.tensors.push(again);
    });
    assert_contains(&twice, &["'output_norm.weight' twice"]);
}

#[test]
fn invalid_alignment_is_rejected_and_a_large_one_is_used() {
    for bad in [Val::U32(0), Val::U32(3), Val::U32(u32::MAX), Val::U64(1 << 40), Val::Str("32"), Val::F32(32.0)] {
        assert_contains(&broken(|w| w.set("general.alignment", bad)), &["general.alignment", "power of two"]);
    }
    let mut writer = tiny_llama();
    writer.alignment = 4096;
    writer.set("general.alignment", Val::U32(4096));
    read_all(&open(writer.bytes()).unwrap());
}

#[test]
fn values_of_unknown_or_nested_type_are_rejected() {
    assert_contains(&broken(|w| w.set("x", Val::Raw(13, vec![0; 8]))), &["the type of 'x' is 13"]);
    assert_contains(&broken(|w| w.set("x", Val::Raw(7, vec![2]))), &["'x' is 2", "0 or 1"]);
    let nested = [9u32.to_le_bytes().to_vec(), 1u64.to_le_bytes().to_vec()].concat();
    assert_contains(&broken(|w| w.set("x", Val::Raw(9, nested))), &["'x' is an array of arrays"]);
    assert_contains(&broken(|w| w.meta.push((String::new(), Val::U32(1)))), &["empty"]);
}

#[test]
fn unsupported_versions_architectures_and_types_are_named() {
    assert_contains(&broken(|w| w.version = 1), &["version 1"]);
    assert_contains(&broken(|w| w.version = 4), &["version 4"]);
    assert_contains(&broken(|w| w.version = 3u32.swap_bytes()), &["big-endian"]);
    let mamba = broken(|w| w.set("general.architecture", Val::Str("mamba")));
    assert_contains(&mamba, &["'mamba'", "llama", "qwen2", "qwen3", "gpt2", "phi3"]);
    assert_contains(&broken(|w| w.remove("general.architecture")), &["general.architecture"]);
    assert_contains(&broken(|w| w.tensor("token_embd.weight").ty = 16), &["token_embd.weight", "IQ2_XXS", "Q4_K"]);
    assert_contains(&broken(|w| w.tensor("token_embd.weight").ty = 99), &["token_embd.weight", "number 99"]);
    assert_contains(&broken(|w| w.set("llama.expert_count", Val::U32(8))), &["mixture of 8 experts"]);
    assert_contains(&broken(|w| w.set("split.count", Val::U32(3))), &["one of 3 parts", "model-00001-of-00003.gguf"]);
    assert_contains(&broken(|w| w.set("llama.rope.scaling.type", Val::Str("magic"))), &["'magic'", "yarn"]);
}

#[test]
fn metadata_that_contradicts_the_tensors_is_rejected() {
    let set = |key: &str, value: u32| broken(|w| w.set(&format!("llama.{key}"), Val::U32(value)));
    assert_contains(&set("embedding_length", 64), &["has the shape", "64"]);
    assert_contains(&set("feed_forward_length", 32), &["blk.0.ffn_gate.weight", "[64, 32]", "[32, 32]"]);
    assert_contains(&set("attention.head_count_kv", 2), &["blk.0.attn_k.weight"]);
    assert_contains(&set("block_count", 2), &["no tensor 'blk.1."]);
    assert_contains(&set("block_count", 0), &["n_layer = 0"]);
    assert_contains(&set("block_count", u32::MAX), &["n_layer"]);
    assert_contains(&set("attention.head_count", 0), &["embedding_length"]);
    assert_contains(&set("attention.head_count", 3), &["multiple of the 3 heads"]);
    assert_contains(&set("attention.head_count_kv", 0), &["n_kv_head"]);
    assert_contains(&set("context_length", 0), &["context_len"]);
    assert_contains(&set("rope.dimension_count", 15), &["rope.dimension_count", "even"]);
    assert_contains(&set("rope.dimension_count", 18), &["rope.dimension_count", "16"]);
    assert_contains(&set("attention.value_length", 8), &["attention.value_length"]);
    assert_contains(&broken(|w| w.remove("llama.context_length")), &["no 'llama.context_length'"]);
    assert_contains(&broken(|w| w.set("llama.context_length", Val::Str("long"))), &["llama.context_length", "whole number"]);
    let more_tokens = broken(|w| w.set("tokenizer.ggml.tokens", Val::Strs(vec!["a".into(); 6])));
    assert_contains(&more_tokens, &["token_embd.weight", "[6, 32]", "[5, 32]"]);
    assert_contains(&broken(|w| w.tensors.retain(|t| t.name != "output_norm.weight")), &["'output_norm.weight'"]);
    // A layer or a bias that the plan would not use is as wrong as a missing one.
    assert_contains(&broken(|w| w.f32("blk.1.attn_norm.weight", &[32], &[1.0; 32])), &["'blk.1.attn_norm.weight'", "not use"]);
    assert_contains(&broken(|w| w.tensors.clear()), &["no weights"]);
}

#[test]
fn gguf_without_vocabulary_opens_but_has_no_tokenizer() {
    let mut writer = tiny_llama();
    for key in ["model", "tokens", "scores", "token_type"] {
        writer.remove(&format!("tokenizer.ggml.{key}"));
    }
    writer.set("llama.vocab_size", Val::U32(5));
    let file = open(writer.bytes()).unwrap();
    assert_contains(&file.tokenizer().unwrap_err().to_string(), &["no tokenizer", "tokenizer.ggml.model"]);
}

#[test]
fn metadata_has_license_template_sampling_and_end_tokens() {
    let mut writer = tiny_llama();
    writer.set("general.license", Val::Str("mit"));
    writer.set("tokenizer.chat_template", Val::Str("{{ messages }}"));
    writer.set("tokenizer.ggml.eot_token_id", Val::U32(3));
    writer.set("general.sampling.temp", Val::F32(0.5));
    writer.set("general.sampling.top_k", Val::U32(20));
    writer.set("tokenizer.ggml.tokens", Val::Strs(["<|im_end|>", "<s>", "</s>", "a", "<|eot_id|>"].map(str::to_owned).to_vec()));
    writer.set("tokenizer.ggml.token_type", Val::I32s(vec![3, 3, 3, 1, 1]));
    let file = open(writer.bytes()).unwrap();
    let info = file.info();
    assert_eq!((info.license.as_deref(), info.chat_template.as_deref()), (Some("mit"), Some("{{ messages }}")));
    assert_eq!((info.eos, info.eot), (Some(2), Some(3)));
    // <|im_end|> is a control token, the plain text <|eot_id|> is not.
    assert_eq!(info.stop_ids, [2, 3, 0]);
    assert_eq!((info.sampling.temperature, info.sampling.top_k, info.sampling.top_p), (Some(0.5), Some(20), None));
}

#[test]
fn scores_are_read_only_for_sentencepiece() {
    let mut writer = tiny_llama();
    writer.set("tokenizer.ggml.scores", Val::Strs(vec!["odd".into()]));
    assert!(open(writer.bytes()).is_err());
    writer.set("tokenizer.ggml.model", Val::Str("gpt2"));
    let TokenizerSource::Gguf(vocab) = open(writer.bytes()).unwrap().tokenizer().unwrap() else { panic!("another source") };
    assert_eq!(vocab.scores.len(), 0);
}

#[test]
fn optional_metadata_of_another_type_is_ignored() {
    let mut writer = tiny_llama();
    for key in ["general.license", "general.name", "tokenizer.ggml.pre", "tokenizer.chat_template"] {
        writer.set(key, Val::Strs(vec!["mit".into(), "apache-2.0".into()]));
    }
    for key in ["general.file_type", "tokenizer.ggml.add_bos_token", "tokenizer.ggml.unknown_token_id"] {
        writer.set(key, Val::Str("odd"));
    }
    for (key, text) in [("temp", "0.5"), ("top_k", " 20 "), ("top_p", "much"), ("min_p", "NaN")] {
        writer.set(&format!("general.sampling.{key}"), Val::Str(text));
    }
    // Ids outside the vocabulary of five tokens.
    for key in ["eot", "eom", "padding", "bos"] {
        writer.set(&format!("tokenizer.ggml.{key}_token_id"), Val::U32(40_000));
    }
    writer.remove("tokenizer.ggml.scores");
    let file = open(writer.bytes()).unwrap();
    let info = file.info();
    assert_eq!((info.name.as_str(), info.license.as_deref(), info.chat_template.as_deref()), ("built-in", None, None));
    assert_eq!((info.bos, info.eot, info.add_bos, &info.stop_ids[..]), (None, None, None, &[2][..]));
    let sampling = info.sampling;
    assert_eq!((sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p), (Some(0.5), Some(20), None, None));
    let TokenizerSource::Gguf(vocab) = file.tokenizer().unwrap() else { panic!("another source") };
    assert_eq!((vocab.bos, vocab.eos, vocab.pad, vocab.scores.len()), (None, Some(2), None, 0));
    let tokenizer = strata::token::Tokenizer::from_gguf(&vocab).unwrap();
    assert_eq!(tokenizer.special_ids().bos, Some(1), "SentencePiece's own begin of text");
}

#[test]
fn head_counts_per_layer_are_read_if_they_agree() {
    let mut writer = tiny_llama();
    writer.set("llama.attention.head_count_kv", Val::I32s(vec![1, 1]));
    assert_eq!(open(writer.bytes()).unwrap().plan().dims.n_kv_head, 1);
    let mixed = broken(|w| w.set("llama.attention.head_count_kv", Val::I32s(vec![1, 2])));
    assert_contains(&mixed, &["head_count_kv", "every layer"]);
    assert_contains(&broken(|w| w.set("llama.attention.head_count_kv", Val::I32s(vec![-1]))), &["head_count_kv"]);
}

#[test]
fn metadata_arrays_and_values_are_read_as_written() {
    let bytes = tiny_llama().bytes();
    let gguf = Gguf::parse(&bytes).unwrap();
    assert_eq!(gguf.get("general.name"), Some(&Value::String("tiny".into())));
    assert_eq!(gguf.strings(&bytes, "tokenizer.ggml.tokens").unwrap().unwrap()[3], "a");
    assert_eq!(gguf.numbers(&bytes, "tokenizer.ggml.scores").unwrap().unwrap(), [0.0, 0.0, 0.0, -1.0, -2.0]);
    assert!(gguf.numbers(&bytes, "tokenizer.ggml.tokens").is_err());
    assert!(gguf.strings(&bytes, "tokenizer.ggml.scores").is_err());
    assert!(gguf.strings(&bytes[..40], "tokenizer.ggml.tokens").is_err());
    assert_eq!(gguf.strings(&bytes, "nothing").unwrap(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn mutated_gguf_never_panics(
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![
            any::<u8>(), Just(0u8), Just(1u8), Just(0x7f), Just(0xff)]), 1..6),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let writer = tiny_llama();
        let header = writer.header().len();
        let mut bytes = writer.bytes();
        for (at, value) in changes {
            bytes[at.index(header)] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(header + 64));
        }
        let (result, largest) = open_watched(bytes);
        prop_assert!(largest < ENOUGH_BYTES, "allocated {} bytes", largest);
        match result {
            Ok(file) => read_all(&file),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
