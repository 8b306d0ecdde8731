//! Kernels: one host file per op, with its variants, parameter struct and grid. They depend on shapes, not on models or
//! policies.
//!
//! Every op has the same interface: `new(gpu, ..)` compiles its variant, `bind(gpu, ..)` creates a bind group once per
//! set of buffers, `record(recorder, &binding, ..)` adds one dispatch. `variants()` lists all keys for the checks
//! without a GPU.

pub mod arithmetic;
pub mod attention_decode;
pub mod attention_prefill;
pub mod dequantize_pages;
mod kv_format;
pub mod linear;
mod matrix_lanes;
pub mod norm;
pub mod page_abstracts;
pub mod page_bounds;
pub mod qk_scores;
pub mod quantize_pages;
pub mod rope_append;
pub mod sample;
pub mod selection;

pub use kv_format::KvFormat;

use super::shader_source::KernelKey;

/// Every variant of these kernels, over a few head dimensions: naga validates them without a GPU.
pub fn variants() -> Vec<KernelKey> {
    let mut keys = norm::variants();
    keys.extend(linear::variants());
    keys.extend(matrix_lanes::variants());
    keys.extend(arithmetic::variants());
    for head_dim in [8, 64, 96, 256] {
        for element in [KvFormat::F16, KvFormat::F32] {
            keys.extend(rope_append::variants(head_dim, element));
        }
        for element in [KvFormat::F16, KvFormat::F32, KvFormat::Q8, KvFormat::Q4] {
            keys.extend(attention_prefill::variants(2, head_dim, element));
            keys.extend(attention_decode::variants(2, head_dim, element));
            keys.extend(qk_scores::variants(2, head_dim, element));
            keys.extend(selection::score_variants(2, head_dim, element));
        }
        keys.extend(page_abstracts::variants(2, head_dim));
        keys.extend(page_bounds::variants(2, head_dim));
        for element in [KvFormat::Q8, KvFormat::Q4] {
            keys.extend(quantize_pages::variants(2, head_dim, element));
            keys.push(dequantize_pages::key(2, head_dim, element));
        }
    }
    keys.extend(sample::variants());
    keys.extend(selection::variants());
    keys
}
