//! Strata: chat with book-length documents on the GPU you already have, fully local.
//!
//! ```text
//! file -> document -> token ids -> engine: prefill -> K,V pages in VRAM | RAM | disk -> attention -> token -> chat
//! ```
//! Data flows left to right; control flows back only as [`engine::EngineCommand`].
//!
//! # Layers
//! A module imports only modules of a lower layer (`tests/tidy` reads the `use crate::` lines):
//! 0 `base` · 1 `reference`, `telemetry` · 2 `document`, `token`, `gpu` · 3 `chats`, `model`, `kv` · 4 `engine` · 5 `cli`, `app`.
//!
//! # Invariants
//! 1. A policy does no I/O and sees no GPU type: plain data in, a selection out.
//! 2. Only the KV residency changes where a page lives; it stays readable until the new copy is complete and checked.
//! 3. Everything is written to disk at most once per page.
//! 4. Exact dense attention (`full`) always exists: it is the oracle for every selective policy.
//! 5. Budgets are caps. Running out of one degrades speed or is refused with numbers, never silently.
//! 6. The engine never blocks the UI thread; all queues are bounded; long work shows progress and can be
//!    cancelled within one prefill chunk or one token.
//! 7. A wrong, torn, stale or foreign file is detected; never a wrong token from a bad file.
//! 8. Nothing opens a socket unless the user asked for it.
//! 9. No silent truncation: a context that does not fit the model's window is refused with both numbers.
//! 10. Linux first, never Linux only: what is Linux alone (io_uring, O_DIRECT) has a portable twin, tested as well.

pub mod app;
pub mod base;
pub mod chats;
pub mod cli;
pub mod document;
pub mod engine;
pub mod gpu;
pub mod kv;
pub mod model;
pub mod reference;
pub mod telemetry;
pub mod token;
