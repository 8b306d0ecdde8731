//! Weights of a model on the GPU: the layout of every tensor in GPU buffers, and the upload.

pub mod layout;
mod pieces;
pub mod upload;
