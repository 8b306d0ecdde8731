//! Documents: files to text, pages, and the location of quotations.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails here")]

mod books;
mod catalog;
mod encodings;
mod files;
mod formats;
mod fuzz;
mod make_files;
mod malformed;
mod mentions;
mod quotes;
mod real;
mod seeded;
mod web_pages;
mod word_files;
