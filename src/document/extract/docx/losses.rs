//! Text of a DOCX file that is left out, counted for a notice.

/// Text that is left out, to be counted in a notice.
#[derive(Debug, Default)]
pub struct Losses {
    pub n_unreadable_parts: usize,
    pub n_header_words: usize,
    pub n_hidden_words: usize,
    pub n_bad_letters: usize,
}

impl Losses {
    /// One sentence for each kind of loss.
    pub fn sentences(&self) -> Vec<String> {
        let counted = [
            (self.n_unreadable_parts, "part(s) of the file could not be read: save it again in Word to include them."),
            (self.n_header_words, "word(s) of headers and footers are left out: they repeat on every page."),
            (self.n_hidden_words, "hidden word(s) are left out, as in print."),
            (self.n_bad_letters, "damaged letter(s) are shown as \u{FFFD}."),
        ];
        counted.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect()
    }
}
