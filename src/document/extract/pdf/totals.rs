//! Counts over all pages, and the notices made of them.

/// Counts over all pages.
#[derive(Default)]
pub struct Totals {
    /// glyphs that were taken
    pub n_glyphs: usize,
    /// of these, glyphs without a known character
    pub n_unknown: usize,
    /// pages without text
    pub n_empty: usize,
    /// of these, pages at which the parser failed
    pub n_failed: usize,
    /// of these, pages of which most letters are not known
    pub n_unreadable: usize,
    /// pages with more glyphs than the limit
    pub n_truncated: usize,
    /// scanned pages with recognized text
    pub n_recognized: usize,
    /// pages that have only invisible text
    pub n_hidden_pages: usize,
    /// invisible words that were left out
    pub n_hidden_words: usize,
}

impl Totals {
    /// Notices for the user, one sentence each.
    pub fn notes(&self, n_pages: usize) -> Vec<String> {
        let n_blank = self.n_empty.saturating_sub(self.n_failed + self.n_unreadable);
        let pages = [
            (n_blank, "have no text: they are empty or images."),
            (self.n_failed, "could not be read: the file is corrupt there."),
            (
                self.n_unreadable,
                "were left out: most of their letters are in fonts without character codes. Run text recognition (OCR) to read them.",
            ),
            (self.n_truncated, "have more letters than the limit for one page."),
            (
                self.n_recognized,
                "are scans: their text was found by text recognition (OCR), and is hidden behind the picture. It may have errors.",
            ),
            (self.n_hidden_pages, "have only hidden text, which was taken."),
        ];
        let notes = pages.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} of {n_pages} pages {what}"));
        let hidden = (self.n_hidden_words > 0).then(|| {
            let n = self.n_hidden_words;
            format!(
                "{n} hidden words were left out: they are clipped, outside of the page, not painted, or in the color behind them."
            )
        });
        let unknown = (self.n_unknown > 0).then(|| {
            let share = self.n_unknown as f64 / self.n_glyphs.max(1) as f64 * 100.0;
            format!("{share:.1} % of the letters are missing: their fonts have no character codes. \u{FFFD} marks their places.")
        });
        notes.chain(hidden).chain(unknown).collect()
    }
}
