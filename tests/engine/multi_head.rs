//! Multi-head attention, as in OPT and Llama 2: the built-in model with its KV head repeated four times, which computes the
//! same function.
//!
//! The file is made here: it differs from the built-in model only in its heads (`assets/demo-model/train.py --kv-heads 4
//! --start` trains such a model further).

use strata::base::{Bytes, Tiers};
use strata::engine::{KvDtype, LoadOptions, ModelSource};
use strata::model::gguf::Gguf;

use super::engine_with;
use super::generation::{generate, golden, user};

const N_HEAD: u32 = 4;

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn number<const N: usize>(&mut self) -> [u8; N] {
        let number = self.bytes[self.at..][..N].try_into().unwrap();
        self.at += N;
        number
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.number())
    }
}

fn find(bytes: &[u8], text: &str) -> usize {
    let said = [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    bytes.windows(said.len()).position(|window| window == said).unwrap()
}

/// Converts a GGUF file with one KV head to one with four.
fn with_as_many_kv_heads_as_heads(bytes: &[u8]) -> Vec<u8> {
    let gguf = Gguf::parse(bytes).unwrap();
    let first = gguf.tensors().iter().map(|(name, _)| find(bytes, name)).min().unwrap();
    let mut out = bytes[..first].to_vec();
    let key = "llama.attention.head_count_kv";
    let value = find(bytes, key) + 8 + key.len() + 4;
    assert_eq!(out[value..][..4], 1_u32.to_le_bytes());
    out[value..][..4].copy_from_slice(&N_HEAD.to_le_bytes());
    let mut reader = Reader { bytes, at: first };
    let mut data: Vec<u8> = Vec::new();
    for _ in 0..gguf.tensors().len() {
        let begin = reader.at;
        let n_name = reader.u64() as usize;
        let name = std::str::from_utf8(&bytes[reader.at..][..n_name]).unwrap();
        reader.at += n_name;
        let n_dims = u32::from_le_bytes(reader.number());
        out.extend_from_slice(&bytes[begin..reader.at]);
        let mut dims: Vec<u64> = (0..n_dims).map(|_| reader.u64()).collect();
        let entry = gguf.tensors().get(name).unwrap();
        let stored = &bytes[entry.start..entry.end];
        data.resize(data.len().next_multiple_of(32), 0);
        let offset = data.len() as u64;
        if name.ends_with("attn_k.weight") || name.ends_with("attn_v.weight") {
            data.extend(stored.repeat(N_HEAD as usize));
            dims[1] *= u64::from(N_HEAD);
        } else {
            data.extend_from_slice(stored);
        }
        dims.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
        out.extend(reader.number::<4>());
        reader.u64();
        out.extend(offset.to_le_bytes());
    }
    out.resize(out.len().next_multiple_of(32), 0);
    [out, data].concat()
}

#[test]
fn multi_head_model_answers_like_the_grouped_one_with_four_times_the_kv() {
    let test = "multi_head_model_answers_like_the_grouped_one_with_four_times_the_kv";
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let (document, rows) = golden();
    let document = &document[..5000];
    let file = std::fs::read(root.join("assets/demo-model/strata-quote-Q8_0.gguf")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("multi-head.gguf");
    std::fs::write(&path, with_as_many_kv_heads_as_heads(&file)).unwrap();
    // All pages in VRAM, then some of them in RAM.
    for vram in [None, Some(9 << 20)] {
        let budgets = Tiers { vram: vram.map(Bytes), ram: None, disk: None };
        let options = LoadOptions { kv_dtype: KvDtype::F32, budgets, context: Some(8192), ..LoadOptions::default() };
        let mut bytes_per_token = Vec::new();
        let mut answers = Vec::new();
        for source in [ModelSource::Path(path.clone()), ModelSource::BuiltIn] {
            let Some((handle, info)) = engine_with(test, source, options.clone()) else { return };
            bytes_per_token.push(info.kv_bytes_per_token);
            for row in &rows[..3] {
                let content = format!("{document}\n\n{}", row["question"].as_str().unwrap());
                answers.push(generate(&handle, vec![user(content)]).text);
            }
        }
        assert_eq!(bytes_per_token[0], u64::from(N_HEAD) * bytes_per_token[1]);
        assert_eq!(answers[..3], answers[3..], "{vram:?}");
        assert!(answers.iter().all(|answer| !answer.trim().is_empty()));
    }
}
