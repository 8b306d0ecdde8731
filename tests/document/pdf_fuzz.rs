//! Mutated PDF files: each is read or rejected, in the limits of the sandbox.
//!
//! `STRATA_FUZZ=10000 cargo test --test document mutated_pdf` for a long run.

use std::time::{Duration, Instant};

use strata::base::Rng;
use strata::document::{DocumentError, Progress};

use crate::make_files::reader;
use crate::make_pdf::{Font, Pdf, composite, embedded, visual};

/// Mutated files in the suite.
const N_FILES: usize = 150;

/// A file with every construct that the reader handles.
fn whole() -> Vec<u8> {
    let mut pdf = Pdf::default();
    let hebrew = visual("הגשר הישן נבנה בשנת 1742");
    let font = Font::of(&mut pdf, &["The old bridge was built of stone in 1848.", &hebrew]);
    let program = embedded(&mut pdf);
    let asian = composite(&mut pdf, "", "/90ms-RKSJ-H", "Japan1", &program);
    let field = "<< /Type /Annot /Subtype /Widget /FT /Tx /V (Oberbach) /Rect [100 20 300 36] /DA (/Helv 11 Tf) >>";
    let field = pdf.add(field);
    let note = pdf.add("<< /Type /Annot /Subtype /Text /Rect [300 240 320 260] /Contents (Check this.) >>");
    let mut content: String = (0..6)
        .map(|i| {
            let y = 260.0 - 12.0 * f64::from(i);
            font.line("The old bridge was built", 30.0, y, 9.0) + &font.line("of stone in 1848.", 215.0, y, 9.0)
        })
        .collect();
    content += &font.line(&hebrew, 30.0, 150.0, 12.0);
    content += "q 0 0 20 20 re W n 1 g 10 10 50 50 re f Q /Span << /ActualText (x) >> BDC ";
    content += &font.line_with("1848", 30.0, 120.0, 7.0, "4 Ts 3 Tr");
    content += "EMC BT /F2 12 Tf 1 0 0 1 40 60 Tm [<8E52> -145 <83CC>] TJ ET";
    let resources = format!("/Font << /F1 {} 0 R /F2 {asian} 0 R >>", font.number);
    let page = pdf.page_with(&content, &resources, &format!("/Annots [{field} 0 R {note} 0 R]"));
    let item = pdf.add(format!("<< /Title (One) /Dest [{page} 0 R /Fit] >>"));
    pdf.catalog = format!("/Outlines << /First {item} 0 R >> /AcroForm << /Fields [{field} 0 R] /NeedAppearances true >>");
    pdf.bytes()
}

/// Changes a few places: bytes, numbers, pieces that go, come twice or come from elsewhere.
fn mutate(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let place = |rng: &mut Rng, len: usize| rng.uniform(len.max(1) as u32) as usize;
    for _ in 0..=rng.uniform(8) {
        let at = place(rng, bytes.len());
        let n = (1 + place(rng, 40)).min(bytes.len() - at);
        match rng.uniform(6) {
            0 => bytes[at] ^= 1 << rng.uniform(8),
            1 => bytes[at] = rng.uniform(256) as u8,
            2 => drop(bytes.drain(at..at + n)),
            3 => {
                let from = place(rng, bytes.len());
                let piece = bytes[from..(from + n).min(bytes.len())].to_vec();
                drop(bytes.splice(at..at, piece));
            }
            4 => {
                // The next number becomes an unusual one.
                let numbers = ["0", "-1", "1e9", "99999999999", "0.00001", "-32768", "65536", "NaN"];
                let digit = bytes[at..].iter().position(u8::is_ascii_digit).map(|step| at + step);
                if let Some(digit) = digit {
                    let end = bytes[digit..].iter().position(|b| !b.is_ascii_digit()).map_or(bytes.len(), |n| digit + n);
                    drop(bytes.splice(digit..end, numbers[place(rng, numbers.len())].bytes()));
                }
            }
            _ => bytes.truncate(at.max(bytes.len() / 2)),
        }
    }
}

#[test]
fn mutated_pdf_files_are_read_or_rejected_in_bounded_time() {
    let n_files = std::env::var("STRATA_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(N_FILES);
    let (whole, reader, mut rng) = (whole(), reader(), Rng::new(41));
    let text = reader.read("a.pdf", &whole, &Progress::default()).unwrap().text;
    assert!(text.contains("The old bridge") && text.contains("Oberbach") && text.contains("הגשר"), "{text}");
    let mut n_read = 0;
    for i in 0..n_files {
        let mut bytes = whole.clone();
        mutate(&mut bytes, &mut rng);
        let began = Instant::now();
        let answer = reader.read("a.pdf", &bytes, &Progress::default());
        let broke =
            matches!(answer, Err(DocumentError::Crashed { .. } | DocumentError::Stalled { .. } | DocumentError::NoReader { .. }));
        assert!(!broke && began.elapsed() < Duration::from_secs(20), "file {i}: {answer:?}");
        n_read += usize::from(answer.is_ok());
    }
    assert!(n_read * 4 > n_files, "most changes leave something to read: {n_read} of {n_files}");
}
