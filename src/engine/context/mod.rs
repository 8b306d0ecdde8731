//! Context: KV storage of the loaded model, saved documents, and page map.

pub(in crate::engine) mod document_parts;
pub(in crate::engine) mod kv_storage;
mod open_documents;
mod open_part;
pub(in crate::engine) mod page_map;
pub(in crate::engine) mod page_view;
mod reuse;
mod reused_part;
pub mod saved_documents;
mod token_positions;
