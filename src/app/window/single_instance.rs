//! Single instance: one window for each store; a second start hands its documents to the open window.
//!
//! ```text
//! first start:  claim ─► window.lock is held ─► Inbox::watch ◄─┐
//! second start: claim ─► taken ─► hand_over ─► inbox/*.json ───┘     (files, no socket)
//! ```
//! Invariants: 1. The system releases the lock when the process ends. 2. A file of the inbox is complete when its name appears.
//! 3. Paths for a window that has ended are not opened later.
//! Limits: [`MAX_LIST_BYTES`] a list; the inbox is polled every [`POLL_INTERVAL`].

use std::fs::{File, TryLockError};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Size of a list of paths at most, bytes.
const MAX_LIST_BYTES: u64 = 1 << 20;
/// Between two polls of the inbox.
const POLL_INTERVAL: Duration = Duration::from_millis(400);
const LOCK_FILE: &str = "window.lock";
const INBOX: &str = "inbox";

/// Result of a claim.
pub enum Claim {
    /// this process has the store, as long as the file is open
    Alone(File, Inbox),
    /// another process has it
    Taken,
    /// the folder is not writable
    Impossible,
}

/// Folder of paths from later starts.
#[derive(Debug, Clone)]
pub struct Inbox(PathBuf);

/// Claims the store in this folder.
pub fn claim(data: &Path) -> Claim {
    let opened = std::fs::create_dir_all(data)
        .and_then(|()| File::options().create(true).truncate(false).write(true).open(data.join(LOCK_FILE)));
    let Ok(file) = opened else { return Claim::Impossible };
    match file.try_lock() {
        Ok(()) => {
            let inbox = Inbox(data.join(INBOX));
            // Older paths were for a window that has ended.
            inbox.take();
            Claim::Alone(file, inbox)
        }
        Err(TryLockError::WouldBlock) => Claim::Taken,
        Err(TryLockError::Error(_)) => Claim::Impossible,
    }
}

/// Sends documents to the window that has this store.
///
/// # Errors
/// The folder is not writable.
pub fn hand_over(data: &Path, documents: &[PathBuf]) -> std::io::Result<()> {
    let inbox = data.join(INBOX);
    std::fs::create_dir_all(&inbox)?;
    // Both processes may have different working folders.
    let paths = documents.iter().map(std::path::absolute).collect::<Result<Vec<_>, _>>()?;
    let nanos = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    let name = inbox.join(format!("{nanos}-{}.new", std::process::id()));
    std::fs::write(&name, serde_json::to_vec(&paths)?)?;
    std::fs::rename(&name, name.with_extension("json"))
}

impl Inbox {
    /// Reports new paths until `on_paths` returns false.
    pub fn watch(&self, on_paths: &mut dyn FnMut(Vec<PathBuf>) -> bool) {
        loop {
            for paths in self.take() {
                if !on_paths(paths) {
                    return;
                }
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Removes and returns all lists, oldest first.
    fn take(&self) -> Vec<Vec<PathBuf>> {
        let Ok(entries) = std::fs::read_dir(&self.0) else { return Vec::new() };
        let mut lists: Vec<PathBuf> =
            entries.flatten().map(|e| e.path()).filter(|path| path.extension().is_some_and(|e| e == "json")).collect();
        lists.sort();
        let read = |list: PathBuf| {
            let mut text = Vec::new();
            let whole = File::open(&list).and_then(|file| file.take(MAX_LIST_BYTES).read_to_end(&mut text));
            // A list that stays would be read again.
            (std::fs::remove_file(&list).is_ok() && whole.is_ok()).then(|| serde_json::from_slice(&text).ok()).flatten()
        };
        lists.into_iter().filter_map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_claim_is_refused_and_its_documents_reach_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("strata");
        let Claim::Alone(lock, inbox) = claim(&data) else { panic!("the first is alone") };
        assert!(matches!(claim(&data), Claim::Taken));
        hand_over(&data, &["/books/a.txt".into(), "b.txt".into()]).unwrap();
        hand_over(&data, &[]).unwrap();
        let mut told = Vec::new();
        inbox.watch(&mut |paths| {
            told.push(paths);
            told.len() < 2
        });
        let here = std::env::current_dir().unwrap();
        assert_eq!(told, [vec![PathBuf::from("/books/a.txt"), here.join("b.txt")], Vec::new()]);
        drop(lock);
        hand_over(&data, &["/books/late.txt".into()]).unwrap();
        let Claim::Alone(_lock, inbox) = claim(&data) else { panic!("the lock is gone with its file") };
        assert_eq!(inbox.take(), Vec::<Vec<PathBuf>>::new(), "what was for another window is not opened later");
    }

    #[test]
    fn damaged_list_is_dropped_and_a_folder_that_is_none_is_nobodys() {
        let dir = tempfile::tempdir().unwrap();
        let Claim::Alone(_lock, inbox) = claim(dir.path()) else { panic!("alone") };
        hand_over(dir.path(), &[]).unwrap();
        std::fs::write(inbox.0.join("0.json"), b"{\"no\": list").unwrap();
        assert_eq!(inbox.take(), vec![Vec::<PathBuf>::new()]);
        assert_eq!(inbox.take(), Vec::<Vec<PathBuf>>::new());
        let file = dir.path().join("file");
        std::fs::write(&file, b"").unwrap();
        assert!(matches!(claim(&file.join("data")), Claim::Impossible));
    }
}
