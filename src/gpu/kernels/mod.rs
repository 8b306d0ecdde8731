//! One host file per op: which variant, its parameter struct, its grid. Kernels know shapes, not models or policies.
//!
//! Every op has the same shape: `new(gpu, ..)` compiles its variant, `bind(gpu, ..)` makes a bind group once per set of
//! buffers, `record(recorder, &binding, ..)` adds one dispatch. `variants()` lists all keys for the device-free checks.

pub mod abstracts;
pub mod attention_decode;
pub mod attention_prefill;
mod kv_element;
pub mod linear;
pub mod norm;
pub mod open_pages;
pub mod page_shares;
pub mod rope_append;
pub mod sample;
pub mod score_pages;
pub mod seal_pages;
pub mod token_scores;

pub use kv_element::KvElement;

use super::shader_source::KernelKey;

/// Every variant of the kernels in this folder, over a few head dimensions: validated by naga with no device.
pub fn variants() -> Vec<KernelKey> {
    let mut keys = norm::variants();
    keys.extend(linear::variants());
    for head_dim in [8, 64, 96, 256] {
        for element in [KvElement::F16, KvElement::F32] {
            keys.extend(rope_append::variants(head_dim, element));
        }
        for element in [KvElement::F16, KvElement::F32, KvElement::Q8, KvElement::Q4] {
            keys.extend(attention_prefill::variants(2, head_dim, element));
            keys.extend(attention_decode::variants(2, head_dim, element));
            keys.extend(token_scores::variants(2, head_dim, element));
        }
        keys.extend(abstracts::variants(2, head_dim));
        keys.extend(score_pages::variants(2, head_dim));
        for element in [KvElement::Q8, KvElement::Q4] {
            keys.extend(seal_pages::variants(2, head_dim, element));
            keys.push(open_pages::key(2, head_dim, element));
        }
    }
    keys.extend(page_shares::variants());
    keys.extend(sample::variants());
    keys
}
