//! Documents: files to text, pages, and the location of quotations.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails here")]

mod books;
mod catalog;
mod encodings;
mod files;
mod formats;
mod fuzz;
mod make_files;
mod make_pdf;
mod malformed;
mod mentions;
mod pdf_agreement;
mod pdf_forms;
mod pdf_fuzz;
mod pdf_hidden;
mod pdf_letters;
mod pdf_order;
mod quotes;
mod real;
mod seeded;
mod web_pages;
mod word_files;
