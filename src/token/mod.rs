//! token: see the layer list in the crate documentation.

mod vocab;

pub use vocab::GgufVocab;
