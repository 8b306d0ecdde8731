//! Location of the test data, and a minimal GGUF reader for vocabularies.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use strata::token::GgufVocab;

/// The built-in model, which is part of the repository.
pub const BUILT_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/demo-model/strata-quote-Q8_0.gguf");
/// Its tokenizer in Hugging Face's format.
pub const BUILT_IN_JSON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/demo-model/tokenizer.json");

/// A file in the data folder; None with a message on stderr if it is missing.
pub fn data(test: &str, path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("STRATA_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data"), PathBuf::from);
    let path = root.join(path);
    if !path.exists() {
        eprintln!("skipped: {test}: no STRATA_DATA ({})", path.display());
        return None;
    }
    Some(path)
}

enum Value {
    Number(u64),
    Float(f32),
    Text(String),
    List(Vec<Value>),
}

struct Reader(std::io::BufReader<std::fs::File>);

impl Reader {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        std::io::Read::read_exact(&mut self.0, &mut bytes).unwrap();
        bytes
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }

    fn text(&mut self) -> String {
        let mut bytes = vec![0; self.u64() as usize];
        std::io::Read::read_exact(&mut self.0, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    fn value(&mut self, kind: u32) -> Value {
        match kind {
            0 | 1 | 7 => Value::Number(u64::from(self.bytes::<1>()[0])),
            2 | 3 => Value::Number(u64::from(u16::from_le_bytes(self.bytes()))),
            4 | 5 => Value::Number(u64::from(self.u32())),
            6 => Value::Float(f32::from_le_bytes(self.bytes())),
            8 => Value::Text(self.text()),
            9 => {
                let kind = self.u32();
                let n = self.u64();
                Value::List((0..n).map(|_| self.value(kind)).collect())
            }
            10..=12 => Value::Number(self.u64()),
            other => panic!("GGUF value type {other}"),
        }
    }
}

/// `tokenizer.ggml.*` and the chat template of a GGUF file.
pub fn read_vocab(path: &Path) -> (GgufVocab, Option<String>) {
    let mut reader = Reader(std::io::BufReader::new(std::fs::File::open(path).unwrap()));
    assert_eq!(&reader.bytes::<4>(), b"GGUF");
    let _version = reader.u32();
    let _n_tensors = reader.u64();
    let n_keys = reader.u64();
    let mut keys = HashMap::new();
    for _ in 0..n_keys {
        let key = reader.text();
        let kind = reader.u32();
        let value = reader.value(kind);
        keys.insert(key, value);
    }
    let mut take = |key: &str| keys.remove(&format!("tokenizer.{key}"));
    let texts = |v: Option<Value>| match v {
        Some(Value::List(list)) => list.into_iter().map(|v| if let Value::Text(t) = v { t } else { panic!() }).collect(),
        _ => Vec::new(),
    };
    let text = |v: Option<Value>| if let Some(Value::Text(t)) = v { Some(t) } else { None };
    let id = |v: Option<Value>| if let Some(Value::Number(n)) = v { Some(n as u32) } else { None };
    let vocab = GgufVocab {
        model: text(take("ggml.model")).unwrap(),
        pre: text(take("ggml.pre")),
        tokens: texts(take("ggml.tokens")),
        scores: match take("ggml.scores") {
            Some(Value::List(l)) => l.into_iter().map(|v| if let Value::Float(f) = v { f } else { panic!() }).collect(),
            _ => Vec::new(),
        },
        token_types: match take("ggml.token_type") {
            Some(Value::List(l)) => l.into_iter().map(|v| if let Value::Number(n) = v { n as u32 } else { panic!() }).collect(),
            _ => Vec::new(),
        },
        merges: texts(take("ggml.merges")),
        bos: id(take("ggml.bos_token_id")),
        eos: id(take("ggml.eos_token_id")),
        eot: id(take("ggml.eot_token_id")),
        unk: id(take("ggml.unknown_token_id")),
        pad: id(take("ggml.padding_token_id")),
        add_bos: id(take("ggml.add_bos_token")).map(|b| b != 0),
        add_eos: id(take("ggml.add_eos_token")).map(|b| b != 0),
        add_space_prefix: id(take("ggml.add_space_prefix")).map(|b| b != 0),
    };
    (vocab, text(take("chat_template")))
}
