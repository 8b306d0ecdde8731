//! Console output of a command: answers or JSON lines on stdout, progress and notices on stderr.
//!
//! ```text
//! answer text, JSON lines ─► out        progress (only if err is a terminal), notices ─► err
//! ```
//! Invariants: 1. With `--json`, every line on `out` is one JSON object. 2. Progress overwrites itself, at most ten times a
//! second, and is cleared before any other output. 3. Text of a model or a file cannot send control codes to a terminal.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::error::CliError;

const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

/// Output streams of one command.
pub struct Console<'a> {
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
    out_is_terminal: bool,
    err_is_terminal: bool,
    json: bool,
    drawn_at: Option<Instant>,
}

impl<'a> Console<'a> {
    /// Console of this process.
    pub fn of_process(out: &'a mut std::io::Stdout, err: &'a mut std::io::Stderr, json: bool) -> Self {
        let (out_is_terminal, err_is_terminal) = (out.is_terminal(), err.is_terminal());
        Console { out, err, out_is_terminal, err_is_terminal, json, drawn_at: None }
    }

    /// Console without terminals.
    #[cfg(test)]
    pub fn plain(out: &'a mut dyn Write, err: &'a mut dyn Write, json: bool) -> Self {
        Console { out, err, out_is_terminal: false, err_is_terminal: false, json, drawn_at: None }
    }

    /// True if the command prints JSON lines.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Writes text without adding a line end, and flushes it.
    ///
    /// # Errors
    /// [`CliError::PipeClosed`] or [`CliError::Output`].
    pub fn text(&mut self, text: &str) -> Result<(), CliError> {
        self.clear_progress();
        if self.out_is_terminal && text.chars().any(is_control) {
            let visible: String = text.chars().filter(|c| !is_control(*c)).collect();
            self.out.write_all(visible.as_bytes())?;
        } else {
            self.out.write_all(text.as_bytes())?;
        }
        Ok(self.out.flush()?)
    }

    /// Writes one line of JSON.
    ///
    /// # Errors
    /// [`CliError::PipeClosed`] or [`CliError::Output`].
    pub fn json_line(&mut self, value: &impl Serialize) -> Result<(), CliError> {
        let mut line = serde_json::to_string(value).map_err(|e| CliError::Failed(format!("cannot write JSON: {e}")))?;
        line.push('\n');
        self.clear_progress();
        self.out.write_all(line.as_bytes())?;
        Ok(self.out.flush()?)
    }

    /// Reports progress: a JSON line, or a line on the terminal that the next one overwrites.
    ///
    /// # Errors
    /// [`CliError::PipeClosed`] or [`CliError::Output`] with `--json`.
    pub fn progress(&mut self, line: &str, json: &impl Serialize) -> Result<(), CliError> {
        if self.json {
            return self.json_line(json);
        }
        if self.err_is_terminal && self.drawn_at.is_none_or(|at| at.elapsed() >= REDRAW_INTERVAL) {
            let _ = write!(self.err, "\r\x1b[K{line}");
            let _ = self.err.flush();
            self.drawn_at = Some(Instant::now());
        }
        Ok(())
    }

    /// Prints a notice for the user.
    ///
    /// # Errors
    /// [`CliError::PipeClosed`] or [`CliError::Output`] with `--json`.
    pub fn note(&mut self, text: &str) -> Result<(), CliError> {
        if self.json {
            return self.json_line(&serde_json::json!({ "event": "notice", "text": text }));
        }
        self.clear_progress();
        // A closed stderr does not end the run.
        let _ = writeln!(self.err, "strata: {text}");
        Ok(())
    }

    /// Prints a detail (statistics of an answer, places of its quotes), on terminals only.
    pub fn detail(&mut self, text: &str) {
        if self.err_is_terminal && !self.json {
            self.clear_progress();
            let visible: String = text.chars().filter(|c| !is_control(*c)).collect();
            let _ = writeln!(self.err, "{visible}");
        }
    }

    fn clear_progress(&mut self) {
        if self.drawn_at.take().is_some() {
            let _ = write!(self.err, "\r\x1b[K");
            let _ = self.err.flush();
        }
    }
}

impl Drop for Console<'_> {
    fn drop(&mut self) {
        self.clear_progress();
    }
}

/// True for control codes that must not reach a terminal.
fn is_control(c: char) -> bool {
    c.is_control() && c != '\n' && c != '\t'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_codes_are_removed_for_terminals_only() {
        for (terminal, expected) in [(true, "a[31mb\n\tc"), (false, "a\x1b[31mb\n\tc")] {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let mut console = Console::plain(&mut out, &mut err, false);
            console.out_is_terminal = terminal;
            console.text("a\x1b[31mb\n\tc").unwrap();
            drop(console);
            assert_eq!(out, expected.as_bytes());
        }
    }

    #[test]
    fn progress_is_drawn_on_terminals_only_and_cleared_before_the_answer() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console::plain(&mut out, &mut err, false);
        console.progress("10 %", &()).unwrap();
        console.err_is_terminal = true;
        console.progress("20 %", &()).unwrap();
        console.progress("too soon", &()).unwrap();
        console.text("answer").unwrap();
        drop(console);
        assert_eq!(out, b"answer");
        assert_eq!(err, b"\r\x1b[K20 %\r\x1b[K");
    }
}
