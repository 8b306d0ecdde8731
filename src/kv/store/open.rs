//! Store lifecycle: create, open, recover.
//!
//! ```text
//! lock ─► header: identity ─► newest intact superblock ─► entries below its mark ─► arenas long enough? ─► PageStore
//!           └ other, older, corrupt: refuse or replace  └ no intact slot: every intact entry is valid
//! ```
//! Every number from a file is checked against the file length or a limit before memory is allocated for it.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::ErrorKind;
use std::sync::Arc;

use crate::base::Bytes;
use crate::base::limits::MAX_CONTEXT;
use crate::kv::store::disk::LOCK_NAME;
use crate::kv::store::error::StoreError;
use crate::kv::store::format::{
    Corruption, ENTRIES_OFFSET, FORMAT_VERSION, GroupEntry, HEADER_BLOCK_BYTES, HeaderBlock, HeaderFields, PageId, PageKind,
    SUPER_SLOT_BYTES, Superblock,
};
use crate::kv::store::geometry::{Geometry, MAX_GROUPS, StoreSpec, arena_name};
use crate::kv::store::page_store::{ABSTRACTS_NAME, Arena, Group, HEADER_NAME, INDEX_NAME, PageSlot, PageState, PageStore};
use crate::kv::store::slab::SlabPool;
use crate::kv::store::storage::{Folder, LockGuard, OpenMode, Storage, read_exact, retry_interrupted, write_all};
use crate::kv::store::token_log::{TokenLog, bytes_of, ids_of};

/// Minimum memory for the pages that `put` and `get` process one at a time.
const SCRATCH_BYTES: u64 = 4 << 20;
/// Minimum number of pages that fit in it.
const SCRATCH_PAGES: u64 = 4;
/// Approximate size of one read of entries.
const PIECE_BYTES: u64 = 1 << 20;

/// Result of opening a store.
#[derive(Debug, Default)]
pub struct OpenReport {
    /// complete groups: every layer is present
    pub n_complete: u32,
    /// damaged groups (corrupt entry) and pages (past the end of their file); all of them are missing
    pub n_damaged: u64,
    /// no intact superblock was found, and the store was recovered from its entries
    pub recovered: bool,
    /// reason why an earlier store was discarded
    pub replaced: Option<StoreError>,
    /// the folder had no store before
    pub is_new: bool,
}

/// Header, index, abstracts.
type SmallFiles = (Arc<dyn Storage>, Arc<dyn Storage>, Option<Arc<dyn Storage>>);

/// Access mode of an open store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// read and write
    ReadWrite,
    /// read only: no file is changed
    ReadOnly,
}

struct Opened {
    header: Arc<dyn Storage>,
    block: HeaderBlock,
    document: TokenLog,
}

impl PageStore {
    /// Opens the store of exactly these tokens, or creates it. A store that is corrupt, of another version, or of other
    /// content is replaced, and the report has the reason.
    ///
    /// # Errors
    /// [`StoreError::Locked`], or an error of the disk.
    pub fn open_or_create(folder: Arc<dyn Folder>, spec: &StoreSpec, tokens: &[u32]) -> Result<(Self, OpenReport), StoreError> {
        let lock = folder.lock(true)?;
        match PageStore::open_locked(&folder, spec, tokens) {
            Ok(opened) => PageStore::finish_open(folder, lock, spec, opened, Access::ReadWrite),
            Err(error) if error.is_unusable_content() => {
                let store = PageStore::create_locked(folder, lock, spec, tokens)?;
                let is_new = matches!(error, StoreError::Absent { .. });
                Ok((store, OpenReport { is_new, replaced: (!is_new).then_some(error), ..OpenReport::default() }))
            }
            Err(error) => Err(error),
        }
    }

    /// Opens the store of exactly these tokens.
    ///
    /// # Errors
    /// [`StoreError::Absent`], [`StoreError::OtherVersion`], [`StoreError::Foreign`], [`StoreError::Damaged`],
    /// [`StoreError::Locked`], or an error of the disk.
    pub fn open(folder: Arc<dyn Folder>, spec: &StoreSpec, tokens: &[u32]) -> Result<(Self, OpenReport), StoreError> {
        let lock = folder.lock(false)?;
        let opened = PageStore::open_locked(&folder, spec, tokens)?;
        PageStore::finish_open(folder, lock, spec, opened, Access::ReadWrite)
    }

    /// Opens the existing store read only, for any document. Corrupt files stay unchanged. Tokens appended after the
    /// document are ignored, because the next owner may overwrite them.
    ///
    /// # Errors
    /// As [`PageStore::open`]; [`StoreError::Damaged`] if the header is inconsistent.
    pub fn open_existing(folder: Arc<dyn Folder>) -> Result<(Self, OpenReport), StoreError> {
        let lock = folder.lock(false)?;
        let opened = PageStore::read_header(&folder)?;
        let corrupt = || StoreError::Damaged { folder: folder.describe(), what: "its header is inconsistent" };
        let spec = spec_of(&opened.block).ok_or_else(corrupt)?;
        let geometry = Geometry::new(&spec).map_err(|_| corrupt())?;
        if opened.block != header_block(&spec, &geometry, opened.block.store_id, &opened.document) {
            return Err(corrupt());
        }
        let (mut store, report) = PageStore::finish_open(folder, lock, &spec, opened, Access::ReadOnly)?;
        store.rewind(store.n_document_tokens);
        Ok((store, report))
    }

    /// Token ids of the document of an existing store, open or not: they never change.
    ///
    /// # Errors
    /// As [`PageStore::open_existing`], but never [`StoreError::Locked`].
    pub fn document_tokens(folder: &Arc<dyn Folder>) -> Result<Vec<u32>, StoreError> {
        Ok(PageStore::read_header(folder)?.document.ids().to_vec())
    }

    fn create_locked(
        folder: Arc<dyn Folder>,
        lock: Box<dyn LockGuard>,
        spec: &StoreSpec,
        tokens: &[u32],
    ) -> Result<Self, StoreError> {
        let geometry = Geometry::new(spec)?;
        let n_tokens = tokens.len() as u64;
        if tokens.len() > MAX_CONTEXT {
            return Err(StoreError::Spec { name: "n_tokens", got: n_tokens, must: format!("{MAX_CONTEXT} at most") });
        }
        let io_error = |op, file: &'static str, bytes| move |e| StoreError::from_io(op, file, bytes, e);
        for name in folder.names().map_err(io_error("read", "the folder", 0))?.iter().filter(|n| *n != LOCK_NAME) {
            folder.remove(name).map_err(|e| StoreError::from_io("remove", name, 0, e))?;
        }
        let create = OpenMode { create: true, direct: false };
        let open = |name: &'static str| retry_interrupted(|| folder.open(name, create)).map_err(io_error("open", name, 0));
        let (header, index) = (open(HEADER_NAME)?, open(INDEX_NAME)?);
        let abstracts = if spec.abstract_bytes > 0 { Some(open(ABSTRACTS_NAME)?) } else { None };
        let log = TokenLog::new(tokens);
        let store_id = random();
        let block = header_block(spec, &geometry, store_id, &log);
        let n_pages = geometry.pages_per_group();
        let store = PageStore {
            groups: vec![Group::new(n_pages); log.n_groups()],
            n_tokens_written: tokens.len(),
            n_document_tokens: tokens.len(),
            tokens: log,
            seq: 1,
            is_dirty: false,
            has_new_files: false,
            ..PageStore::empty(folder, lock, spec, geometry, store_id, (header, index, abstracts))
        };
        let write = |name: &'static str, storage: &Arc<dyn Storage>, bytes: &[u8], offset| {
            write_all(&**storage, bytes, offset).map_err(io_error("write", name, bytes.len() as u64))
        };
        // The block is written last: until it is complete, the folder has no store.
        write(HEADER_NAME, &store.header, &bytes_of(tokens), HEADER_BLOCK_BYTES)?;
        write(INDEX_NAME, &store.index, &vec![0; ENTRIES_OFFSET as usize], 0)?;
        write(INDEX_NAME, &store.index, &store.superblock(1, &[]).encode(), Superblock::slot_offset(1))?;
        retry_interrupted(|| store.index.sync()).map_err(io_error("sync", INDEX_NAME, 0))?;
        write(HEADER_NAME, &store.header, &block.encode(), 0)?;
        retry_interrupted(|| store.header.sync()).map_err(io_error("sync", HEADER_NAME, 0))?;
        retry_interrupted(|| store.folder.sync()).map_err(io_error("sync", "the folder", 0))?;
        Ok(store)
    }

    fn empty(
        folder: Arc<dyn Folder>,
        lock: Box<dyn LockGuard>,
        spec: &StoreSpec,
        geometry: Geometry,
        store_id: u64,
        (header, index, abstracts): SmallFiles,
    ) -> Self {
        PageStore {
            folder,
            _lock: lock,
            spec: spec.clone(),
            geometry,
            store_id,
            header,
            index,
            abstracts,
            arenas: std::collections::BTreeMap::new(),
            tokens: TokenLog::default(),
            n_tokens_written: 0,
            n_document_tokens: 0,
            groups: Vec::new(),
            seq: 0,
            is_dirty: false,
            has_new_files: true,
            is_committing: false,
            n_unchanged_tokens: usize::MAX,
            latched: None,
            scratch: SlabPool::new(Bytes(SCRATCH_BYTES.max(SCRATCH_PAGES * geometry.slot_bytes[0].max(geometry.slot_bytes[1])))),
        }
    }

    fn open_locked(folder: &Arc<dyn Folder>, spec: &StoreSpec, tokens: &[u32]) -> Result<Opened, StoreError> {
        let geometry = Geometry::new(spec)?;
        let opened = PageStore::read_header(folder)?;
        // Hashing is the slow part of opening, so the ids themselves are compared.
        let other = (opened.document.ids() != tokens).then(|| TokenLog::new(tokens));
        let expected = header_block(spec, &geometry, opened.block.store_id, other.as_ref().unwrap_or(&opened.document));
        match mismatch(&opened.block, &expected) {
            Some(what) => Err(StoreError::Foreign { folder: folder.describe(), what }),
            None => Ok(opened),
        }
    }

    fn read_header(folder: &Arc<dyn Folder>) -> Result<Opened, StoreError> {
        let described = folder.describe();
        let absent = || StoreError::Absent { folder: described.clone() };
        let corrupt = |what| StoreError::Damaged { folder: described.clone(), what };
        let io_error = |e| StoreError::from_io("read", HEADER_NAME, 0, e);
        let header = match retry_interrupted(|| folder.open(HEADER_NAME, OpenMode::default())) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Err(absent()),
            other => other.map_err(io_error)?,
        };
        let len = header.len().map_err(io_error)?;
        if len < HEADER_BLOCK_BYTES {
            return Err(if len == 0 { absent() } else { corrupt("its header is too short") });
        }
        let bytes = read(&header, 0, HEADER_BLOCK_BYTES).map_err(io_error)?;
        // The block is written last, so a process died while it created the store. Nothing is corrupt.
        if bytes.iter().all(|b| *b == 0) {
            return Err(absent());
        }
        let block = HeaderBlock::decode(&bytes).map_err(|corruption| match corruption {
            Corruption::Version(found) => StoreError::OtherVersion { folder: described.clone(), found, known: FORMAT_VERSION },
            _ => corrupt("its header does not match its checksum"),
        })?;
        if block.n_tokens > MAX_CONTEXT as u64 || HEADER_BLOCK_BYTES + 4 * block.n_tokens > len {
            return Err(corrupt("its token ids are truncated"));
        }
        let ids = ids_of(&read(&header, HEADER_BLOCK_BYTES, 4 * block.n_tokens).map_err(io_error)?);
        let document = TokenLog::new(&ids);
        if document.hash() != block.token_hash {
            return Err(corrupt("its token ids do not match their hash"));
        }
        Ok(Opened { header, block, document })
    }

    fn finish_open(
        folder: Arc<dyn Folder>,
        lock: Box<dyn LockGuard>,
        spec: &StoreSpec,
        opened: Opened,
        access: Access,
    ) -> Result<(Self, OpenReport), StoreError> {
        let Opened { header, block, document } = opened;
        let geometry = Geometry::new(spec)?;
        let open = |name: &'static str| {
            let mode = OpenMode { create: access == Access::ReadWrite, direct: false };
            retry_interrupted(|| folder.open(name, mode)).map_err(|e| match e.kind() {
                ErrorKind::NotFound if access == Access::ReadOnly => {
                    StoreError::Damaged { folder: folder.describe(), what: "one of its files is missing" }
                }
                _ => StoreError::from_io("open", name, 0, e),
            })
        };
        let index = open(INDEX_NAME)?;
        let abstracts = if spec.abstract_bytes > 0 { Some(open(ABSTRACTS_NAME)?) } else { None };
        let mut store = PageStore::empty(folder, lock, spec, geometry, block.store_id, (header, index, abstracts));
        store.n_document_tokens = document.ids().len();
        store.tokens = document;
        let mut report = OpenReport::default();
        let superblock = store.newest_superblock()?;
        report.recovered = superblock.is_none();
        store.seq = superblock.map_or(1, |s| s.seq);
        store.is_dirty = report.recovered;
        if let Some(superblock) = &superblock {
            store.read_later_tokens(superblock)?;
        }
        store.n_tokens_written = store.tokens.ids().len();
        let n_pages = geometry.pages_per_group();
        store.groups = vec![Group::new(n_pages); store.tokens.n_groups()];
        store.read_entries(superblock.as_ref(), access, &mut report)?;
        store.open_arenas(&mut report)?;
        report.n_complete = (0..store.n_groups()).filter(|g| store.is_group_complete(*g)).count() as u32;
        Ok((store, report))
    }

    fn newest_superblock(&self) -> Result<Option<Superblock>, StoreError> {
        let io_error = |e| StoreError::from_io("read", INDEX_NAME, 0, e);
        let len = self.index.len().map_err(io_error)?;
        let mut newest: Option<Superblock> = None;
        for offset in [0, SUPER_SLOT_BYTES] {
            if offset + SUPER_SLOT_BYTES > len {
                break;
            }
            let bytes = read(&self.index, offset, SUPER_SLOT_BYTES).map_err(io_error)?;
            if let Ok(found) = Superblock::decode(&bytes, self.store_id)
                && newest.is_none_or(|n| found.seq > n.seq)
            {
                newest = Some(found);
            }
        }
        Ok(newest)
    }

    /// Reads the tokens appended after the document. If their hash does not match, only the tokens of the document
    /// remain.
    fn read_later_tokens(&mut self, superblock: &Superblock) -> Result<(), StoreError> {
        let io_error = |e| StoreError::from_io("read", HEADER_NAME, 0, e);
        let n_known = self.n_document_tokens as u64;
        let len = self.header.len().map_err(io_error)?;
        let is_possible = superblock.n_tokens <= MAX_CONTEXT as u64 && HEADER_BLOCK_BYTES + 4 * superblock.n_tokens <= len;
        if superblock.n_tokens <= n_known || !is_possible {
            return Ok(());
        }
        let bytes =
            read(&self.header, HEADER_BLOCK_BYTES + 4 * n_known, 4 * (superblock.n_tokens - n_known)).map_err(io_error)?;
        let mut all = self.tokens.clone();
        all.extend(&ids_of(&bytes));
        if all.hash() == superblock.token_hash {
            self.tokens = all;
        }
        Ok(())
    }

    fn read_entries(
        &mut self,
        superblock: Option<&Superblock>,
        access: Access,
        report: &mut OpenReport,
    ) -> Result<(), StoreError> {
        let io_error = |e| StoreError::from_io("read", INDEX_NAME, 0, e);
        let entry_bytes = self.geometry.entry_bytes;
        let len = self.index.len().map_err(io_error)?;
        let on_disk = len.saturating_sub(ENTRIES_OFFSET) / entry_bytes;
        let marked = superblock.map_or(on_disk, |s| s.n_groups);
        let n = marked.min(self.groups.len() as u64).min(on_disk).min(MAX_GROUPS);
        report.n_damaged += marked.min(self.groups.len() as u64) - n;
        let per_piece = (PIECE_BYTES / entry_bytes).max(1);
        let mut torn_groups = Vec::new();
        for first in (0..n).step_by(per_piece as usize) {
            let n_here = per_piece.min(n - first);
            let piece = read(&self.index, ENTRIES_OFFSET + first * entry_bytes, n_here * entry_bytes).map_err(io_error)?;
            for (bytes, group) in piece.chunks_exact(entry_bytes as usize).zip(first as u32..) {
                match self.accept_entry(bytes, group, superblock) {
                    Ok(seq) => self.seq = self.seq.max(seq),
                    Err(Corruption::BadMagic) if bytes.iter().all(|b| *b == 0) => {}
                    Err(corruption) => {
                        report.n_damaged += u64::from(corruption != Corruption::Uncommitted);
                        torn_groups.push(group);
                    }
                }
            }
        }
        if access == Access::ReadOnly {
            return Ok(());
        }
        // An entry of no commit must not be taken for one of a later commit.
        for group in torn_groups {
            let zeros = vec![0; entry_bytes as usize];
            write_all(&*self.index, &zeros, self.geometry.entry_offset(group)).map_err(io_error)?;
        }
        let end = ENTRIES_OFFSET + n * entry_bytes;
        if len != end {
            retry_interrupted(|| self.index.set_len(end)).map_err(io_error)?;
        }
        Ok(())
    }

    /// Validates the entry of a group and applies it to the page table.
    fn accept_entry(&mut self, bytes: &[u8], group: u32, superblock: Option<&Superblock>) -> Result<u64, Corruption> {
        let n_pages = self.geometry.pages_per_group();
        let entry = GroupEntry::decode(bytes, group, self.store_id, n_pages)?;
        if superblock.is_some_and(|s| entry.seq > s.seq) {
            return Err(Corruption::Uncommitted);
        }
        if self.tokens.group_hash(group) != Some(&entry.token_hash) {
            return Err(Corruption::Foreign);
        }
        let Some(place) = self.groups.get_mut(group as usize) else { return Err(Corruption::Foreign) };
        for (slot, sum) in place.pages.iter_mut().zip(&entry.page_sums).filter(|(_, sum)| **sum != 0) {
            *slot = PageSlot { state: PageState::Committed, sum: *sum };
        }
        (place.abstract_sum, place.has_entry) = (entry.abstract_sum, true);
        Ok(entry.seq)
    }

    /// Opens the arenas with pages. Marks pages past the end of their file as missing.
    fn open_arenas(&mut self, report: &mut OpenReport) -> Result<(), StoreError> {
        let geometry = self.geometry;
        let n_layer = geometry.n_layer;
        let mode = OpenMode { create: false, direct: true };
        for (group, state) in (0u32..).zip(&mut self.groups) {
            for (slot, i) in state.pages.iter_mut().zip(0u32..).filter(|(slot, _)| slot.is_present()) {
                let kind = if i < n_layer { PageKind::Kv } else { PageKind::Activation };
                let place = geometry.place(PageId { kind, layer: i % n_layer, group });
                if !self.arenas.contains_key(&place.arena) {
                    let name = arena_name(place.arena.0, place.arena.1);
                    let io_error = |e| StoreError::from_io("open", &name, 0, e);
                    match retry_interrupted(|| self.folder.open(&name, mode)) {
                        Ok(storage) => {
                            let len = storage.len().map_err(io_error)?;
                            self.arenas.insert(place.arena, Arena { storage, len, is_dirty: false });
                        }
                        Err(e) if e.kind() == ErrorKind::NotFound => {}
                        Err(e) => return Err(io_error(e)),
                    }
                }
                let len = self.arenas.get(&place.arena).map_or(0, |a| a.len);
                if place.offset + geometry.slot_of(kind) > len {
                    slot.state = PageState::Missing;
                    report.n_damaged += 1;
                }
            }
        }
        Ok(())
    }
}

fn header_block(spec: &StoreSpec, geometry: &Geometry, store_id: u64, tokens: &TokenLog) -> HeaderBlock {
    HeaderBlock::new(HeaderFields {
        store_id,
        n_layer: spec.n_layer,
        kv_page_bytes: spec.kv_page_bytes,
        activation_page_bytes: spec.activation_page_bytes,
        abstract_bytes: spec.abstract_bytes,
        extent_groups: geometry.extent_groups,
        arena_extents: geometry.arena_extents,
        hashes: [spec.model_hash, spec.tokenizer_hash, spec.settings_hash, tokens.hash()],
        n_tokens: tokens.ids().len() as u64,
        layout: spec.layout_bytes(),
    })
}

/// The spec recorded in a header. None if its layout is not UTF-8.
fn spec_of(block: &HeaderBlock) -> Option<StoreSpec> {
    let layout = block.layout.split(|b| *b == 0).next().unwrap_or_default();
    Some(StoreSpec {
        model_hash: block.model_hash,
        tokenizer_hash: block.tokenizer_hash,
        settings_hash: block.settings_hash,
        layout: std::str::from_utf8(layout).ok()?.to_owned(),
        n_layer: block.n_layer,
        kv_page_bytes: block.kv_page_bytes,
        activation_page_bytes: block.activation_page_bytes,
        abstract_bytes: block.abstract_bytes,
    })
}

/// The first difference between the recorded and the expected spec.
fn mismatch(found: &HeaderBlock, expected: &HeaderBlock) -> Option<&'static str> {
    let differs = [
        (found.model_hash != expected.model_hash, "another model"),
        (found.tokenizer_hash != expected.tokenizer_hash, "another tokenizer"),
        (found.settings_hash != expected.settings_hash, "other rope or quantization settings"),
        (found.layout != expected.layout, "another KV type"),
        (found.token_hash != expected.token_hash, "another document"),
        (found != expected, "other page sizes"),
    ];
    differs.into_iter().find(|(differs, _)| *differs).map(|(_, what)| what)
}

fn read(storage: &Arc<dyn Storage>, offset: u64, len: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len).map_err(|_| ErrorKind::FileTooLarge)?];
    read_exact(&**storage, &mut bytes, offset)?;
    Ok(bytes)
}

/// A random number for the store id. Not secret.
fn random() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    hasher.write_u128(now.map_or(0, |t| t.as_nanos()));
    hasher.finish()
}
