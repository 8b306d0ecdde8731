//! Plain-loop twins of the kernels: the truth they are tested against. Clear, never fast; sums in f64.

mod attention;
mod linear;
mod norm;
mod rope_append;
mod sample;
mod seal_pages;

pub use attention::attention;
pub use linear::{Activation, embed, matmul};
pub use norm::norm;
pub use rope_append::{RopeSpec, rope};
pub use sample::{argmax, top_k};
pub use seal_pages::{PageShape, open_page, seal_page};
