//! Documents from files, pages, and quotations found again.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails here")]

mod build;
mod files;
mod formats;
mod harm;
mod library;
mod mentions;
mod quotes;
mod real;
mod seeded;
