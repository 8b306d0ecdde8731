//! Weights: where each tensor of a plan goes in device buffers, and the upload that puts it there.

pub mod layout;
