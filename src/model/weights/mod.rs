//! Weights of a model on the GPU: the layout of every tensor in GPU buffers, and the upload.

pub mod layout;
pub mod upload;
