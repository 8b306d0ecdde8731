//! Engine API: commands in, events out, as plain data.
//!
//! ```text
//! window, command line ─► EngineCommand ─► worker thread ─► EngineEvent ─► window, command line
//! ```
//! Nothing here imports another module of the engine, so a front end or a server can use it alone.

mod command;
mod device;
mod event;
mod kernel_work;
mod kv_dtype;
mod pages;
mod request;
mod saved_document;
mod summary;

pub use command::*;
pub use device::*;
pub use event::*;
pub use kernel_work::*;
pub use kv_dtype::*;
pub use pages::*;
pub use request::*;
pub use saved_document::*;
pub use summary::*;
