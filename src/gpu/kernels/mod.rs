//! One host file per op: which variant, its parameter struct, its grid. Kernels know shapes, not models or policies.
//!
//! Every op has the same shape: `new(gpu, ..)` compiles its variant, `bind(gpu, ..)` makes a bind group once per set of
//! buffers, `record(recorder, &binding, ..)` adds one dispatch. `variants()` lists all keys for the device-free checks.

pub mod attention_decode;
pub mod attention_prefill;
pub mod linear;
pub mod norm;
pub mod rope_append;
pub mod sample;

use super::shader_source::KernelKey;

/// Element type of K and V in the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvElement {
    /// half precision
    F16,
    /// single precision
    F32,
}

impl KvElement {
    /// Bytes of one element.
    pub fn bytes(self) -> u64 {
        match self {
            KvElement::F16 => 2,
            KvElement::F32 => 4,
        }
    }

    /// Defines for a kernel that reads or writes blocks of head dimension `head_dim`.
    pub(super) fn defines(self, head_dim: usize) -> Vec<(&'static str, String)> {
        let mut defines = vec![("D", head_dim.to_string())];
        if self == KvElement::F16 {
            defines.push(("KV_F16", String::new()));
        }
        defines
    }
}

/// Every variant of the kernels in this folder, over a few head dimensions: validated by naga with no device.
pub fn variants() -> Vec<KernelKey> {
    let mut keys = norm::variants();
    keys.extend(linear::variants());
    for head_dim in [8, 64, 96, 256] {
        for element in [KvElement::F16, KvElement::F32] {
            keys.extend(rope_append::variants(head_dim, element));
            keys.extend(attention_prefill::variants(head_dim, element));
            keys.extend(attention_decode::variants(head_dim, element));
        }
    }
    keys.extend(sample::variants());
    keys
}
