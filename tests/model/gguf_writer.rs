//! GGUF writer for test cases, and a tiny model to corrupt.

use half::f16;

/// A metadata value.
#[derive(Clone)]
pub enum Val {
    U32(u32),
    U64(u64),
    F32(f32),
    Bool(bool),
    Str(&'static str),
    Text(String),
    Strs(Vec<String>),
    F32s(Vec<f32>),
    I32s(Vec<i32>),
    /// type number and raw bytes
    Raw(u32, Vec<u8>),
}

#[derive(Clone)]
pub struct Tensor {
    pub name: String,
    /// outermost first; written in reverse order
    pub shape: Vec<u64>,
    pub ty: u32,
    pub data: Vec<u8>,
    /// overrides the next free offset
    pub offset: Option<u64>,
}

#[derive(Clone)]
pub struct Writer {
    pub version: u32,
    pub alignment: u64,
    pub meta: Vec<(String, Val)>,
    pub tensors: Vec<Tensor>,
    /// overrides the true counts
    pub n_meta: Option<u64>,
    pub n_tensors: Option<u64>,
}

fn string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

impl Val {
    fn write(&self, out: &mut Vec<u8>) {
        let array = |out: &mut Vec<u8>, ty: u32, n: usize| {
            out.extend(9u32.to_le_bytes());
            out.extend(ty.to_le_bytes());
            out.extend((n as u64).to_le_bytes());
        };
        let scalar = |out: &mut Vec<u8>, ty: u32, bytes: &[u8]| {
            out.extend(ty.to_le_bytes());
            out.extend(bytes);
        };
        match self {
            Val::U32(v) => scalar(out, 4, &v.to_le_bytes()),
            Val::U64(v) => scalar(out, 10, &v.to_le_bytes()),
            Val::F32(v) => scalar(out, 6, &v.to_le_bytes()),
            Val::Bool(v) => scalar(out, 7, &[u8::from(*v)]),
            Val::Str(text) => {
                out.extend(8u32.to_le_bytes());
                string(out, text);
            }
            Val::Text(text) => {
                out.extend(8u32.to_le_bytes());
                string(out, text);
            }
            Val::Strs(texts) => {
                array(out, 8, texts.len());
                texts.iter().for_each(|text| string(out, text));
            }
            Val::F32s(values) => {
                array(out, 6, values.len());
                values.iter().for_each(|v| out.extend(v.to_le_bytes()));
            }
            Val::I32s(values) => {
                array(out, 5, values.len());
                values.iter().for_each(|v| out.extend(v.to_le_bytes()));
            }
            Val::Raw(ty, bytes) => scalar(out, *ty, bytes),
        }
    }
}

impl Writer {
    pub fn new(arch: &str) -> Writer {
        let meta = vec![("general.architecture".to_owned(), Val::Text(arch.to_owned()))];
        Writer { version: 3, alignment: 32, meta, tensors: Vec::new(), n_meta: None, n_tensors: None }
    }

    pub fn set(&mut self, key: &str, value: Val) {
        match self.meta.iter_mut().find(|(k, _)| k == key) {
            Some(entry) => entry.1 = value,
            None => self.meta.push((key.to_owned(), value)),
        }
    }

    pub fn remove(&mut self, key: &str) {
        self.meta.retain(|(k, _)| k != key);
    }

    pub fn f32(&mut self, name: &str, shape: &[u64], values: &[f32]) {
        assert_eq!(shape.iter().product::<u64>(), values.len() as u64, "{name}");
        let data = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.tensors.push(Tensor { name: name.to_owned(), shape: shape.to_vec(), ty: 0, data, offset: None });
    }

    pub fn tensor(&mut self, name: &str) -> &mut Tensor {
        self.tensors.iter_mut().find(|t| t.name == name).unwrap()
    }

    /// Everything before the tensor data, unpadded.
    pub fn header(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.n_tensors.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.n_meta.unwrap_or(self.meta.len() as u64).to_le_bytes());
        for (key, value) in &self.meta {
            string(&mut out, key);
            value.write(&mut out);
        }
        let mut next = 0;
        for tensor in &self.tensors {
            string(&mut out, &tensor.name);
            out.extend((tensor.shape.len() as u32).to_le_bytes());
            tensor.shape.iter().rev().for_each(|d| out.extend(d.to_le_bytes()));
            out.extend(tensor.ty.to_le_bytes());
            out.extend(tensor.offset.unwrap_or(next).to_le_bytes());
            next = (next + tensor.data.len() as u64).next_multiple_of(self.alignment);
        }
        out
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.header();
        for tensor in &self.tensors {
            out.resize(out.len().next_multiple_of(self.alignment as usize), 0);
            out.extend(&tensor.data);
        }
        out
    }
}

/// One layer of llama, 32 wide, two heads, five tokens, with one F16 and one Q8_0 matrix.
pub fn tiny_llama() -> Writer {
    let mut w = Writer::new("llama");
    for (key, value) in [
        ("block_count", 1),
        ("context_length", 64),
        ("embedding_length", 32),
        ("feed_forward_length", 64),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 1),
        ("rope.dimension_count", 16),
    ] {
        w.set(&format!("llama.{key}"), Val::U32(value));
    }
    w.set("llama.attention.layer_norm_rms_epsilon", Val::F32(1e-5));
    w.set("general.name", Val::Str("tiny"));
    w.set("tokenizer.ggml.model", Val::Str("llama"));
    w.set("tokenizer.ggml.tokens", Val::Strs(["<unk>", "<s>", "</s>", "a", "b"].map(str::to_owned).to_vec()));
    w.set("tokenizer.ggml.scores", Val::F32s(vec![0.0, 0.0, 0.0, -1.0, -2.0]));
    w.set("tokenizer.ggml.token_type", Val::I32s(vec![2, 3, 3, 1, 1]));
    w.set("tokenizer.ggml.bos_token_id", Val::U32(1));
    w.set("tokenizer.ggml.eos_token_id", Val::U32(2));
    w.set("tokenizer.ggml.add_bos_token", Val::Bool(true));
    let value = |i: usize| ((i * 37 + 11) % 64) as f32 / 64.0 - 0.5;
    let mut matrix = |name: &str, rows: u64, cols: u64| {
        let values: Vec<f32> = (0..(rows * cols) as usize).map(value).collect();
        w.f32(name, &[rows, cols], &values);
    };
    matrix("token_embd.weight", 5, 32);
    for (name, rows, cols) in [("attn_q", 32, 32), ("attn_k", 16, 32), ("attn_v", 16, 32), ("attn_output", 32, 32)] {
        matrix(&format!("blk.0.{name}.weight"), rows, cols);
    }
    for (name, rows, cols) in [("ffn_gate", 64, 32), ("ffn_up", 64, 32), ("ffn_down", 32, 64)] {
        matrix(&format!("blk.0.{name}.weight"), rows, cols);
    }
    for name in ["blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"] {
        w.f32(name, &[32], &[1.0; 32]);
    }
    let half = w.tensor("blk.0.attn_k.weight");
    half.ty = 1;
    half.data = (0..16 * 32).flat_map(|i| f16::from_f32(value(i)).to_le_bytes()).collect();
    let eight = w.tensor("blk.0.ffn_up.weight");
    eight.ty = 8;
    eight.data = (0..64).flat_map(|row| [[0, 0x2c].to_vec(), vec![row as u8; 32]].concat()).collect();
    w
}
