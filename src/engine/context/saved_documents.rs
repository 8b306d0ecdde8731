//! Saved documents, for display: the catalog entry of each, with the size and state of its store.
//!
//! ```text
//! Catalog (names, dates) ─┐
//! StoreRoot (folders, bytes) ─┴─► list │ remove │ verify ─► SavedDocument, Checked
//! ```
//! 1. A store without a catalog entry is listed and can be removed, because it takes disk space.
//! 2. An open store is neither removed nor checked.
//! 3. A check updates only the last use of each store, in the order of their last use, so that this order stays.
//!
//! Owner thread: the one that opened the catalog. No function here needs a model.

use std::path::{Path, PathBuf};

use crate::base::Bytes;
use crate::document::catalog::{Catalog, CatalogEntry, CatalogError, ReadState, begins_with, default_root};
use crate::engine::api::{KvDtype, SavedDocument, SavedState};
use crate::kv::store::{PageStore, StoreError, StoreInfo, StoreRoot};

/// Digits of a store's name.
const ID_LEN: usize = 32;
/// Name of a document without a catalog entry.
const UNBOUNDED: &str = "unknown";

/// Error of listing, removing or checking saved documents.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// the catalog
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// a store
    #[error(transparent)]
    Store(#[from] StoreError),
    /// the user gives no folder, and the system has no cache folder
    #[error("the system names no cache folder; choose a folder for the library with --kv-dir")]
    NoFolder,
}

impl SavedError {
    /// True if the request was at fault, not the machine.
    pub fn is_bad_input(&self) -> bool {
        matches!(self, SavedError::Catalog(CatalogError::NoSuch { .. } | CatalogError::Ambiguous { .. }))
    }
}

/// Result of the check of one store.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Checked {
    /// id, for commands
    pub id: String,
    /// name of the document
    pub name: String,
    /// pages read
    pub pages: u64,
    /// damaged pages and index entries
    pub damaged: u64,
    /// another problem, or the reason that it was not checked
    pub problem: Option<String>,
    /// true if it is in use, and so was not checked
    pub in_use: bool,
}

impl Checked {
    /// True if some of its pages must be prefilled again.
    pub fn is_damaged(&self) -> bool {
        self.damaged > 0 || (self.problem.is_some() && !self.in_use)
    }
}

/// Folder of the library: `kv_dir`, or the cache folder of the user.
///
/// # Errors
/// [`SavedError::NoFolder`].
pub fn library_root(kv_dir: Option<&Path>) -> Result<PathBuf, SavedError> {
    kv_dir.map(Path::to_owned).or_else(default_root).ok_or(SavedError::NoFolder)
}

/// All saved documents, least recently used last; those without a catalog entry at the end.
///
/// # Errors
/// The catalog, or the library's folder, cannot be read.
pub fn list(catalog: &Catalog, library: &StoreRoot) -> Result<Vec<SavedDocument>, SavedError> {
    let mut stores = stores(library)?;
    let mut saved = Vec::new();
    for entry in catalog.list()? {
        let at = stores.iter().position(|s| s.name == entry.id);
        let store = at.map(|at| stores.remove(at));
        saved.push(document(entry, store.as_ref()));
    }
    saved.extend(stores.into_iter().rev().map(|store| unlisted(&store)));
    Ok(saved)
}

/// Deletes the saved KV of the one document whose id begins with `id`, and the KV of documents saved after it, which cannot
/// be used without it. Returns them, the document itself first.
///
/// # Errors
/// No such document, or several; [`StoreError::Locked`] if one of them is open; an error of the disk.
pub fn remove(catalog: &Catalog, library: &StoreRoot, id: &str) -> Result<Vec<SavedDocument>, SavedError> {
    let mut found = match catalog.find(id) {
        Ok(entry) => {
            let mut entries: Vec<CatalogEntry> = catalog.list()?.into_iter().filter(|e| is_saved_after(e, &entry)).collect();
            entries.insert(0, entry);
            let saved = |entry: CatalogEntry| {
                let store = library.info(&entry.id);
                document(entry, store.as_ref())
            };
            entries.into_iter().map(saved).collect()
        }
        Err(CatalogError::NoSuch { .. }) => vec![find_unlisted(library, id)?],
        Err(error) => return Err(error.into()),
    };
    // Documents with the most documents before them go first: after an error, each store still has the one that it continues.
    found.sort_by_key(|saved| saved.after.len());
    for saved in found.iter().rev() {
        match library.remove(&saved.id) {
            Ok(()) | Err(StoreError::Absent { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        catalog.remove(&saved.id)?;
    }
    Ok(found)
}

/// True if `entry` was saved after the document of `before`, at the same place, by the same model.
fn is_saved_after(entry: &CatalogEntry, before: &CatalogEntry) -> bool {
    let is_same_kv = entry.model_fingerprint == before.model_fingerprint && entry.kv_dtype == before.kv_dtype;
    is_same_kv && begins_with(&entry.after, &before.after, &before.content_hash)
}

/// Reads every page of every store. Calls `on` with the document's name, the pages done and all pages; it returns false to
/// stop the check.
///
/// # Errors
/// The catalog, or the library's folder, cannot be read.
pub fn verify(
    catalog: &Catalog,
    library: &StoreRoot,
    on: &mut dyn FnMut(&str, u64, u64) -> bool,
) -> Result<Vec<Checked>, SavedError> {
    let mut entries = catalog.list()?;
    let mut found = Vec::new();
    let mut goes_on = true;
    for store in stores(library)? {
        let known = entries.iter().position(|e| e.id == store.name).map(|at| entries.remove(at).name);
        let name = known.unwrap_or_else(|| UNBOUNDED.to_owned());
        if goes_on {
            let checked = check(library, store.name, name.clone(), &mut |done, all| {
                goes_on = on(&name, done, all);
                goes_on
            });
            found.push(checked);
        }
    }
    let gone = |entry: CatalogEntry| Checked {
        problem: Some("its files are gone; it will be read again".to_owned()),
        ..Checked::of(entry.id, entry.name)
    };
    found.extend(entries.into_iter().map(gone));
    Ok(found)
}

impl Checked {
    fn of(id: String, name: String) -> Checked {
        Checked { id, name, pages: 0, damaged: 0, problem: None, in_use: false }
    }
}

fn check(library: &StoreRoot, id: String, name: String, on: &mut dyn FnMut(u64, u64) -> bool) -> Checked {
    let opened = library.folder(&id).and_then(PageStore::open_existing);
    let mut checked = Checked::of(id, name);
    match opened.and_then(|(mut store, report)| Ok((store.verify(on)?, report))) {
        Ok((pages, report)) => {
            checked.pages = pages.n_checked;
            checked.damaged = pages.n_bad + report.n_damaged;
            checked.problem = report.recovered.then(|| "both copies of its superblock are damaged".to_owned());
        }
        Err(error) => {
            checked.in_use = matches!(error, StoreError::Locked { .. });
            checked.problem = Some(error.to_string());
        }
    }
    checked
}

/// Folders with the name of a store, least recently used first.
fn stores(library: &StoreRoot) -> Result<Vec<StoreInfo>, SavedError> {
    let is_id = |name: &str| name.len() == ID_LEN && name.bytes().all(|b| b.is_ascii_hexdigit());
    Ok(library.stores()?.into_iter().filter(|s| is_id(&s.name)).collect())
}

fn find_unlisted(library: &StoreRoot, id: &str) -> Result<SavedDocument, SavedError> {
    let wanted = id.trim().to_ascii_lowercase();
    let fits = |store: &StoreInfo| !wanted.is_empty() && store.name.starts_with(&wanted);
    let found: Vec<StoreInfo> = stores(library)?.into_iter().filter(fits).collect();
    match found.as_slice() {
        [one] => Ok(unlisted(one)),
        [] => Err(CatalogError::NoSuch { id: id.to_owned() }.into()),
        several => Err(CatalogError::Ambiguous { id: id.to_owned(), n: several.len() }.into()),
    }
}

/// A saved document: its catalog entry, with the size and state of its store.
pub fn document(entry: CatalogEntry, store: Option<&StoreInfo>) -> SavedDocument {
    let state = match (store, entry.state) {
        (None, _) => SavedState::Missing,
        (Some(_), ReadState::Read) => SavedState::Read,
        (Some(_), ReadState::Partial) => SavedState::Partial,
    };
    SavedDocument {
        id: entry.id,
        name: entry.name,
        content_hash: entry.content_hash,
        after: entry.after,
        bytes: entry.bytes,
        pages: entry.pages,
        model: entry.model,
        kv_dtype: dtype_named(&entry.kv_dtype),
        tokens: entry.tokens,
        saved_tokens: entry.saved_tokens,
        kv_bytes: store.map_or(Bytes(0), |s| s.bytes).0,
        state,
        prefill_seconds: entry.prefill_seconds,
        last_used: entry.last_used,
    }
}

fn unlisted(store: &StoreInfo) -> SavedDocument {
    let since = store.last_used.duration_since(std::time::UNIX_EPOCH);
    SavedDocument {
        id: store.name.clone(),
        name: UNBOUNDED.to_owned(),
        content_hash: String::new(),
        after: Vec::new(),
        bytes: 0,
        pages: 0,
        model: UNBOUNDED.to_owned(),
        kv_dtype: KvDtype::default(),
        tokens: 0,
        saved_tokens: 0,
        kv_bytes: store.bytes.0,
        state: SavedState::Partial,
        prefill_seconds: 0.0,
        last_used: since.ok().and_then(|s| i64::try_from(s.as_secs()).ok()).unwrap_or(0),
    }
}

/// Element type by its name in the catalog.
fn dtype_named(name: &str) -> KvDtype {
    let all = [KvDtype::F16, KvDtype::Q8, KvDtype::Q4, KvDtype::F32];
    all.into_iter().find(|dtype| dtype.name() == name).unwrap_or_default()
}
