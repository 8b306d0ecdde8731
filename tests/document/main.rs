//! Documents from files, pages, and quotations found again.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails here")]

mod files;
mod library;
mod quotes;
