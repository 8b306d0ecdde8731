//! Context: where the KV of the loaded model is stored, the saved documents, and the map of pages.

pub(in crate::engine) mod document_parts;
pub(in crate::engine) mod kv_storage;
pub(in crate::engine) mod open_documents;
pub(in crate::engine) mod page_map;
pub mod saved_documents;
mod token_positions;
