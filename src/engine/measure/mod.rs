//! Measurement: benchmarks, teacher forcing for fidelity, and synthetic KV for long contexts.

pub mod bench_table;
mod benchmark;
mod kernel_profile;
mod synthetic_kv;
mod teacher_forcing;
