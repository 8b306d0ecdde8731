//! Context: KV storage of the loaded model, saved documents, and page map.

pub(in crate::engine) mod document_parts;
pub(in crate::engine) mod kv_storage;
pub(in crate::engine) mod open_documents;
pub(in crate::engine) mod page_map;
pub mod saved_documents;
mod token_positions;
