//! Reference implementations of the kernels as plain loops, which tests compare the kernels with. Clear, not fast; sums
//! in f64.

mod attention;
mod dequantize_pages;
mod linear;
mod norm;
mod page_abstracts;
mod page_bounds;
mod qk_scores;
mod quantize_pages;
mod rope_append;
mod sample;
mod token_selection;

pub use attention::attention;
pub use dequantize_pages::dequantize_page_as_f16;
pub use linear::{Activation, embed, halve_activations, matmul, quantize_activations};
pub use norm::norm;
pub use page_abstracts::page_abstracts;
pub use page_bounds::page_bounds;
pub use qk_scores::qk_scores;
pub use quantize_pages::{PageShape, dequantize_page, quantize_page};
pub use rope_append::{RopeSpec, rope};
pub use sample::{argmax, top_k};
pub use token_selection::{eligible, highest_bound, page_candidates, page_weights, select_tokens, token_key};
