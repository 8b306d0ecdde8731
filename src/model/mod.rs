//! Model files (untrusted bytes), quantised block formats, and architectures as data.

pub mod plan;
