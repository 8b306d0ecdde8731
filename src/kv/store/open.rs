//! Making, opening and recovering a store.
//!
//! ```text
//! lock ─► header: whose? ─► superblock: newer whole slot ─► entries up to its mark ─► arenas long enough? ─► PageStore
//!           └ other, older, damaged: refused, or replaced          └ no whole slot: every whole entry counts
//! ```
//! Every number from a file is checked against the file's length or a limit before memory is asked for.

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
use crate::kv::store::storage::{Folder, LockGuard, OpenHow, Storage, read_exact, retried, write_all};
use crate::kv::store::token_log::{TokenLog, bytes_of, ids_of};

/// Least memory for the pages that `put` and `get` work on, one at a time.
const SCRATCH_BYTES: u64 = 4 << 20;
/// Pages that it has room for.
const SCRATCH_PAGES: u64 = 4;
/// Entries are read in pieces of about this size.
const PIECE_BYTES: u64 = 1 << 20;

/// What opening found.
#[derive(Debug, Default)]
pub struct OpenReport {
    /// groups of which every layer is there
    pub n_complete: u32,
    /// groups whose entry, and pages whose file end, was damaged: they are missing
    pub n_damaged: u64,
    /// no whole superblock was found, and the entries were counted instead
    pub recovered: bool,
    /// why an earlier store was thrown away
    pub replaced: Option<StoreError>,
    /// nothing was there before
    pub is_new: bool,
}

/// Header, index, abstracts.
type SmallFiles = (Arc<dyn Storage>, Arc<dyn Storage>, Option<Arc<dyn Storage>>);

/// What a store is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// to read and to write
    Use,
    /// to check it: nothing is changed
    Look,
}

struct Opened {
    header: Arc<dyn Storage>,
    block: HeaderBlock,
    document: TokenLog,
}

impl PageStore {
    /// Opens the store of exactly these tokens, or makes it; one that is damaged, of another version, or of something else,
    /// is replaced, and the report says why.
    ///
    /// # Errors
    /// [`StoreError::Locked`], or what the disk said.
    pub fn open_or_create(folder: Arc<dyn Folder>, spec: &StoreSpec, tokens: &[u32]) -> Result<(Self, OpenReport), StoreError> {
        let lock = folder.lock(true)?;
        match PageStore::open_locked(&folder, spec, tokens) {
            Ok(opened) => PageStore::finish_open(folder, lock, spec, opened, Access::Use),
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
    /// [`StoreError::Locked`], or what the disk said.
    pub fn open(folder: Arc<dyn Folder>, spec: &StoreSpec, tokens: &[u32]) -> Result<(Self, OpenReport), StoreError> {
        let lock = folder.lock(false)?;
        let opened = PageStore::open_locked(&folder, spec, tokens)?;
        PageStore::finish_open(folder, lock, spec, opened, Access::Use)
    }

    /// Opens the store that is there, whatever it is for, to look at its document: what is damaged in its files stays as it
    /// is, and tokens that were added after the document's are left out, since the next to open it may write over them.
    ///
    /// # Errors
    /// As [`PageStore::open`]; where the header contradicts itself, [`StoreError::Damaged`].
    pub fn open_existing(folder: Arc<dyn Folder>) -> Result<(Self, OpenReport), StoreError> {
        let lock = folder.lock(false)?;
        let opened = PageStore::read_header(&folder)?;
        let damaged = || StoreError::Damaged { folder: folder.describe(), what: "its header contradicts itself" };
        let spec = spec_of(&opened.block).ok_or_else(damaged)?;
        let geometry = Geometry::new(&spec).map_err(|_| damaged())?;
        if opened.block != header_block(&spec, &geometry, opened.block.store_id, &opened.document) {
            return Err(damaged());
        }
        let (mut store, report) = PageStore::finish_open(folder, lock, &spec, opened, Access::Look)?;
        store.rewind(store.n_document_tokens);
        Ok((store, report))
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
        let said = |op, file: &'static str, bytes| move |e| StoreError::from_io(op, file, bytes, e);
        for name in folder.names().map_err(said("read", "the folder", 0))?.iter().filter(|n| *n != LOCK_NAME) {
            folder.remove(name).map_err(|e| StoreError::from_io("remove", name, 0, e))?;
        }
        let create = OpenHow { create: true, direct: false };
        let open = |name: &'static str| retried(|| folder.open(name, create)).map_err(said("open", name, 0));
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
            ..PageStore::bare(folder, lock, spec, geometry, store_id, (header, index, abstracts))
        };
        let write = |name: &'static str, storage: &Arc<dyn Storage>, bytes: &[u8], offset| {
            write_all(&**storage, bytes, offset).map_err(said("write", name, bytes.len() as u64))
        };
        // The block last: until it is whole there is no store here.
        write(HEADER_NAME, &store.header, &bytes_of(tokens), HEADER_BLOCK_BYTES)?;
        write(INDEX_NAME, &store.index, &vec![0; ENTRIES_OFFSET as usize], 0)?;
        write(INDEX_NAME, &store.index, &store.superblock(1, &[]).encode(), Superblock::slot_offset(1))?;
        retried(|| store.index.sync()).map_err(said("sync", INDEX_NAME, 0))?;
        write(HEADER_NAME, &store.header, &block.encode(), 0)?;
        retried(|| store.header.sync()).map_err(said("sync", HEADER_NAME, 0))?;
        retried(|| store.folder.sync()).map_err(said("sync", "the folder", 0))?;
        Ok(store)
    }

    fn bare(
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
            n_kept_tokens: usize::MAX,
            latched: None,
            scratch: SlabPool::new(Bytes(SCRATCH_BYTES.max(SCRATCH_PAGES * geometry.slot_bytes[0].max(geometry.slot_bytes[1])))),
        }
    }

    fn open_locked(folder: &Arc<dyn Folder>, spec: &StoreSpec, tokens: &[u32]) -> Result<Opened, StoreError> {
        let geometry = Geometry::new(spec)?;
        let opened = PageStore::read_header(folder)?;
        // Hashing is the slow part of opening: the ids themselves are compared.
        let other = (opened.document.ids() != tokens).then(|| TokenLog::new(tokens));
        let wanted = header_block(spec, &geometry, opened.block.store_id, other.as_ref().unwrap_or(&opened.document));
        match difference(&opened.block, &wanted) {
            Some(what) => Err(StoreError::Foreign { folder: folder.describe(), what }),
            None => Ok(opened),
        }
    }

    fn read_header(folder: &Arc<dyn Folder>) -> Result<Opened, StoreError> {
        let described = folder.describe();
        let absent = || StoreError::Absent { folder: described.clone() };
        let damaged = |what| StoreError::Damaged { folder: described.clone(), what };
        let said = |e| StoreError::from_io("read", HEADER_NAME, 0, e);
        let header = match retried(|| folder.open(HEADER_NAME, OpenHow::default())) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Err(absent()),
            other => other.map_err(said)?,
        };
        let len = header.len().map_err(said)?;
        if len < HEADER_BLOCK_BYTES {
            return Err(if len == 0 { absent() } else { damaged("its header is too short") });
        }
        let bytes = read(&header, 0, HEADER_BLOCK_BYTES).map_err(said)?;
        // The block is written last, so here somebody died while making the store: nothing is damaged.
        if bytes.iter().all(|b| *b == 0) {
            return Err(absent());
        }
        let block = HeaderBlock::decode(&bytes).map_err(|flaw| match flaw {
            Corruption::Version(found) => StoreError::OtherVersion { folder: described.clone(), found, known: FORMAT_VERSION },
            _ => damaged("its header does not fit its checksum"),
        })?;
        if block.n_tokens > MAX_CONTEXT as u64 || HEADER_BLOCK_BYTES + 4 * block.n_tokens > len {
            return Err(damaged("its token ids are cut off"));
        }
        let ids = ids_of(&read(&header, HEADER_BLOCK_BYTES, 4 * block.n_tokens).map_err(said)?);
        let document = TokenLog::new(&ids);
        if document.hash() != block.token_hash {
            return Err(damaged("its token ids do not fit their hash"));
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
            let how = OpenHow { create: access == Access::Use, direct: false };
            retried(|| folder.open(name, how)).map_err(|e| match e.kind() {
                ErrorKind::NotFound if access == Access::Look => {
                    StoreError::Damaged { folder: folder.describe(), what: "a file of it is gone" }
                }
                _ => StoreError::from_io("open", name, 0, e),
            })
        };
        let index = open(INDEX_NAME)?;
        let abstracts = if spec.abstract_bytes > 0 { Some(open(ABSTRACTS_NAME)?) } else { None };
        let mut store = PageStore::bare(folder, lock, spec, geometry, block.store_id, (header, index, abstracts));
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
        let said = |e| StoreError::from_io("read", INDEX_NAME, 0, e);
        let len = self.index.len().map_err(said)?;
        let mut newest: Option<Superblock> = None;
        for offset in [0, SUPER_SLOT_BYTES] {
            if offset + SUPER_SLOT_BYTES > len {
                break;
            }
            let bytes = read(&self.index, offset, SUPER_SLOT_BYTES).map_err(said)?;
            if let Ok(found) = Superblock::decode(&bytes, self.store_id)
                && newest.is_none_or(|n| found.seq > n.seq)
            {
                newest = Some(found);
            }
        }
        Ok(newest)
    }

    /// Tokens added after the document's own. Where they do not fit their hash the document's are what is left.
    fn read_later_tokens(&mut self, superblock: &Superblock) -> Result<(), StoreError> {
        let said = |e| StoreError::from_io("read", HEADER_NAME, 0, e);
        let known = self.n_document_tokens as u64;
        let len = self.header.len().map_err(said)?;
        let is_possible = superblock.n_tokens <= MAX_CONTEXT as u64 && HEADER_BLOCK_BYTES + 4 * superblock.n_tokens <= len;
        if superblock.n_tokens <= known || !is_possible {
            return Ok(());
        }
        let bytes = read(&self.header, HEADER_BLOCK_BYTES + 4 * known, 4 * (superblock.n_tokens - known)).map_err(said)?;
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
        let said = |e| StoreError::from_io("read", INDEX_NAME, 0, e);
        let entry_bytes = self.geometry.entry_bytes;
        let len = self.index.len().map_err(said)?;
        let on_disk = len.saturating_sub(ENTRIES_OFFSET) / entry_bytes;
        let marked = superblock.map_or(on_disk, |s| s.n_groups);
        let n = marked.min(self.groups.len() as u64).min(on_disk).min(MAX_GROUPS);
        report.n_damaged += marked.min(self.groups.len() as u64) - n;
        let per_piece = (PIECE_BYTES / entry_bytes).max(1);
        let mut torn = Vec::new();
        for first in (0..n).step_by(per_piece as usize) {
            let n_here = per_piece.min(n - first);
            let piece = read(&self.index, ENTRIES_OFFSET + first * entry_bytes, n_here * entry_bytes).map_err(said)?;
            for (bytes, group) in piece.chunks_exact(entry_bytes as usize).zip(first as u32..) {
                match self.accept_entry(bytes, group, superblock) {
                    Ok(seq) => self.seq = self.seq.max(seq),
                    Err(Corruption::NotOurs) if bytes.iter().all(|b| *b == 0) => {}
                    Err(flaw) => {
                        report.n_damaged += u64::from(flaw != Corruption::Early);
                        torn.push(group);
                    }
                }
            }
        }
        if access == Access::Look {
            return Ok(());
        }
        // What is of no commit must not be taken for one of a later commit.
        for group in torn {
            let nothing = vec![0; entry_bytes as usize];
            write_all(&*self.index, &nothing, self.geometry.entry_offset(group)).map_err(said)?;
        }
        let end = ENTRIES_OFFSET + n * entry_bytes;
        if len != end {
            retried(|| self.index.set_len(end)).map_err(said)?;
        }
        Ok(())
    }

    /// Takes the entry of a group over.
    fn accept_entry(&mut self, bytes: &[u8], group: u32, superblock: Option<&Superblock>) -> Result<u64, Corruption> {
        let n_pages = self.geometry.pages_per_group();
        let entry = GroupEntry::decode(bytes, group, self.store_id, n_pages)?;
        if superblock.is_some_and(|s| entry.seq > s.seq) {
            return Err(Corruption::Early);
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

    /// Opens the arenas that have pages, and counts pages past their ends as missing.
    fn open_arenas(&mut self, report: &mut OpenReport) -> Result<(), StoreError> {
        let geometry = self.geometry;
        let n_layer = geometry.n_layer;
        let how = OpenHow { create: false, direct: true };
        for (group, state) in (0u32..).zip(&mut self.groups) {
            for (slot, i) in state.pages.iter_mut().zip(0u32..).filter(|(slot, _)| slot.is_present()) {
                let kind = if i < n_layer { PageKind::Kv } else { PageKind::Activation };
                let place = geometry.place(PageId { kind, layer: i % n_layer, group });
                if !self.arenas.contains_key(&place.arena) {
                    let name = arena_name(place.arena.0, place.arena.1);
                    let said = |e| StoreError::from_io("open", &name, 0, e);
                    match retried(|| self.folder.open(&name, how)) {
                        Ok(storage) => {
                            let len = storage.len().map_err(said)?;
                            self.arenas.insert(place.arena, Arena { storage, len, is_dirty: false });
                        }
                        Err(e) if e.kind() == ErrorKind::NotFound => {}
                        Err(e) => return Err(said(e)),
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

/// What a header says its store is for; none where its layout is no text.
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

/// What a store was made for, where that is not what is wanted.
fn difference(found: &HeaderBlock, wanted: &HeaderBlock) -> Option<&'static str> {
    let differs = [
        (found.model_hash != wanted.model_hash, "another model"),
        (found.tokenizer_hash != wanted.tokenizer_hash, "another tokenizer"),
        (found.settings_hash != wanted.settings_hash, "other rope or quantization settings"),
        (found.layout != wanted.layout, "another KV type"),
        (found.token_hash != wanted.token_hash, "another document"),
        (found != wanted, "other page sizes"),
    ];
    differs.into_iter().find(|(differs, _)| *differs).map(|(_, what)| what)
}

fn read(storage: &Arc<dyn Storage>, offset: u64, len: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len).map_err(|_| ErrorKind::FileTooLarge)?];
    read_exact(&**storage, &mut bytes, offset)?;
    Ok(bytes)
}

/// A number that no other store has; not secret.
fn random() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    hasher.write_u128(now.map_or(0, |t| t.as_nanos()));
    hasher.finish()
}
