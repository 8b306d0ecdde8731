//! Writes a small file whenever its text changes, off the thread that draws.
//!
//! ```text
//! save(text) ─► [newest text] ─► thread: beside the file, then in its place
//! ```
//! Invariants: 1. [`SettingsFile::save`] never waits. 2. The file is the old one or the new one, never half of it. 3. What was
//! saved is written before the value is gone.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// A file and the thread that writes it; without a file, nothing.
#[derive(Default)]
pub struct SettingsFile {
    work: Option<(Sender<String>, JoinHandle<()>)>,
    complaints: Option<Receiver<String>>,
}

impl SettingsFile {
    /// Of the file at `path`, which need not be there.
    pub fn of(path: PathBuf) -> SettingsFile {
        let (texts, newest) = channel::<String>();
        let (complain, complaints) = channel();
        let work = move || {
            while let Ok(mut text) = newest.recv() {
                // Whatever came meanwhile is newer.
                while let Ok(newer) = newest.try_recv() {
                    text = newer;
                }
                if let Err(error) = write(&path, &text) {
                    // The window may be gone.
                    let _ = complain.send(format!("{} cannot be written: {error}.", path.display()));
                }
            }
        };
        let thread = std::thread::Builder::new().name("settings".to_owned()).spawn(work);
        SettingsFile { work: thread.ok().map(|thread| (texts, thread)), complaints: Some(complaints) }
    }

    /// Will be in the file soon.
    pub fn save(&self, text: String) {
        if let Some((texts, _)) = &self.work {
            // A thread that is gone has complained.
            let _ = texts.send(text);
        }
    }

    /// One sentence, where a file could not be written.
    pub fn complaint(&self) -> Option<String> {
        self.complaints.as_ref()?.try_recv().ok()
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
        assert_eq!(file.complaint(), None);
        drop(file);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "text 199");
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn file_that_cannot_be_written_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = SettingsFile::of(dir.path().to_owned());
        file.save("text".to_owned());
        let complaint = file.complaints.as_ref().unwrap().recv().unwrap();
        assert!(complaint.contains("cannot be written"), "{complaint}");
    }
}
