//! Settings file: a small file that a background thread rewrites whenever its text changes.
//!
//! ```text
//! save(text) ─► [newest text] ─► thread: beside the file, then in its place
//! ```
//! Invariants: 1. [`SettingsFile::save`] never waits. 2. The file has the old text or the new text, never a part of it.
//! 3. `drop` waits until the newest text is written.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// A file and its writer thread; or neither.
#[derive(Default)]
pub struct SettingsFile {
    work: Option<(Sender<String>, JoinHandle<()>)>,
    errors: Option<Receiver<String>>,
}

impl SettingsFile {
    /// Writer of the file at `path`, which may be absent.
    pub fn of(path: PathBuf) -> SettingsFile {
        let (texts, newest) = channel::<String>();
        let (report, errors) = channel();
        let work = move || {
            while let Ok(mut text) = newest.recv() {
                // A later text replaces it.
                while let Ok(newer) = newest.try_recv() {
                    text = newer;
                }
                if let Err(error) = write(&path, &text) {
                    // The window may be closed.
                    let _ = report.send(format!("{} cannot be written: {error}.", path.display()));
                }
            }
        };
        let thread = std::thread::Builder::new().name("settings".to_owned()).spawn(work);
        SettingsFile { work: thread.ok().map(|thread| (texts, thread)), errors: Some(errors) }
    }

    /// Queues the new text of the file.
    pub fn save(&self, text: String) {
        if let Some((texts, _)) = &self.work {
            // If the thread has ended, it has reported an error.
            let _ = texts.send(text);
        }
    }

    /// One sentence, if the file could not be written.
    pub fn error(&self) -> Option<String> {
        self.errors.as_ref()?.try_recv().ok()
    }
}

impl Drop for SettingsFile {
    fn drop(&mut self) {
        if let Some((texts, thread)) = self.work.take() {
            drop(texts);
            let _ = thread.join();
        }
    }
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let beside = path.with_extension("new");
    let mut file = std::fs::File::create(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_text_is_in_the_file_when_its_writer_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new folder/settings.json");
        let file = SettingsFile::of(path.clone());
        (0..200).for_each(|n| file.save(format!("text {n}")));
        assert_eq!(file.error(), None);
        drop(file);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "text 199");
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn file_that_cannot_be_written_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = SettingsFile::of(dir.path().to_owned());
        file.save("text".to_owned());
        let error = file.errors.as_ref().unwrap().recv().unwrap();
        assert!(error.contains("cannot be written"), "{error}");
    }
}
