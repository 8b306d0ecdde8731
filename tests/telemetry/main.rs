//! Rings, counters and exports of telemetry, from outside.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod hub;
