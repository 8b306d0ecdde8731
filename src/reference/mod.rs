//! Plain-loop twins of the kernels: the truth they are tested against. Clear, never fast; sums in f64.

mod abstracts;
mod attention;
mod linear;
mod norm;
mod open_pages;
mod page_shares;
mod rope_append;
mod sample;
mod score_pages;
mod seal_pages;
mod token_scores;

pub use abstracts::abstracts;
pub use attention::attention;
pub use linear::{Activation, embed, matmul};
pub use norm::norm;
pub use open_pages::open_page_as_f16;
pub use page_shares::page_shares;
pub use rope_append::{RopeSpec, rope};
pub use sample::{argmax, top_k};
pub use score_pages::page_bounds;
pub use seal_pages::{PageShape, open_page, quantize_page};
pub use token_scores::token_scores;
