//! Store file format: header block, superblock, group entries; encoding, checksums, validation. Pure.
//!
//! The documentation of [the store](super) has the byte diagram. Its sizes and offsets are asserted here at compile
//! time, and every block is validated when it is read. Numbers are little-endian.
//!
//! Invariant: `decode` of any bytes returns a value or a [`Corruption`], and never panics.

use std::fmt;
use std::mem::{offset_of, size_of};

use bytemuck::{Pod, Zeroable};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

#[cfg(target_endian = "big")]
compile_error!("the store's files are little-endian; add byte swaps in format.rs before building for this target");

/// Format version. Any change of the meaning of a byte increments it.
pub const FORMAT_VERSION: u32 = 1;
/// Tokens per page, and per page group.
pub const PAGE_TOKENS: u32 = 64;
/// Alignment of direct I/O: address, offset and length are multiples of it.
pub const ALIGN_BYTES: u64 = 4096;
/// Size of the header block; the token ids follow it.
pub const HEADER_BLOCK_BYTES: u64 = 4096;
/// Size of one superblock slot.
pub const SUPER_SLOT_BYTES: u64 = 4096;
/// Offset of the group entries in the index.
pub const ENTRIES_OFFSET: u64 = 2 * SUPER_SLOT_BYTES;
/// Size of a group entry before its page checksums.
pub const ENTRY_HEAD_BYTES: usize = 64;

const HEADER_MAGIC: [u8; 8] = *b"STRATAKV";
const SUPER_MAGIC: [u8; 8] = *b"STRATASB";
const ENTRY_MAGIC: u32 = u32::from_le_bytes(*b"GRP1");

/// Kind of payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageKind {
    /// keys and values of one layer, all KV heads
    Kv,
    /// input activations of one layer, from which its keys and values can be recomputed
    Activation,
}

impl PageKind {
    /// Both kinds, in the order of the checksums in a group entry.
    pub const ALL: [PageKind; 2] = [PageKind::Kv, PageKind::Activation];

    /// Position in [`PageKind::ALL`].
    pub fn index(self) -> usize {
        match self {
            PageKind::Kv => 0,
            PageKind::Activation => 1,
        }
    }
}

/// One page: 64 tokens of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId {
    /// kind of payload
    pub kind: PageKind,
    /// layer, from 0
    pub layer: u32,
    /// page group: tokens `64 * group .. 64 * (group + 1)`
    pub group: u32,
}

impl PageId {
    /// The KV page of a layer and group.
    pub fn kv(layer: u32, group: u32) -> Self {
        PageId { kind: PageKind::Kv, layer, group }
    }
}

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            PageKind::Kv => "KV page",
            PageKind::Activation => "activation page",
        };
        write!(f, "{kind} {} of layer {}", self.group, self.layer)
    }
}

/// Reason why a block was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Corruption {
    /// too short, or wrong magic number
    BadMagic,
    /// another version of the format
    Version(u32),
    /// checksum mismatch
    Checksum,
    /// belongs to another store, another place, or other tokens
    Foreign,
    /// belongs to a commit that did not complete
    Uncommitted,
}

/// The first 256 bytes of the header block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct HeaderBlock {
    magic: [u8; 8],
    version: u32,
    block_bytes: u32,
    /// random; detects files of another store
    pub store_id: u64,
    /// L
    pub n_layer: u32,
    /// tokens per page
    pub page_tokens: u32,
    /// payload bytes of a KV page
    pub kv_page_bytes: u64,
    /// payload bytes of an activation page, 0 if the store has none
    pub activation_page_bytes: u64,
    /// bytes of the abstract of one page, 0 if the store has none
    pub abstract_bytes: u32,
    /// page groups per extent
    pub extent_groups: u32,
    /// extents per arena file
    pub arena_extents: u32,
    reserved: u32,
    /// hash of the model's weights
    pub model_hash: [u8; 32],
    /// hash of the tokenizer
    pub tokenizer_hash: [u8; 32],
    /// hash of the rope and quantization settings
    pub settings_hash: [u8; 32],
    /// hash of the document's token ids
    pub token_hash: [u8; 32],
    /// number of token ids of the document; they follow the block
    pub n_tokens: u64,
    /// element type and layout of a page payload, ASCII, zero-padded
    pub layout: [u8; 24],
    unused: [u8; 24],
    checksum: u64,
}

/// The first 128 bytes of a superblock slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Superblock {
    magic: [u8; 8],
    version: u32,
    reserved: u32,
    /// as in the header block
    pub store_id: u64,
    /// counts commits from 1; slot `seq % 2` holds it
    pub seq: u64,
    /// one past the last valid group entry
    pub n_groups: u64,
    /// number of visible groups
    pub n_committed: u64,
    /// token ids in the header file
    pub n_tokens: u64,
    /// hash of those token ids
    pub token_hash: [u8; 32],
    /// total size of all arenas, for inspection by hand
    pub arena_bytes: u64,
    unused: [u8; 24],
    checksum: u64,
}

/// The first 64 bytes of a group entry; the checksums of its pages follow, by kind, then by layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct EntryHead {
    magic: u32,
    /// index of the group
    pub group: u32,
    /// the commit that makes it visible
    pub seq: u64,
    /// as in the header block
    pub store_id: u64,
    /// hash of all tokens up to the end of this group
    pub token_hash: [u8; 16],
    /// checksum of the abstract row of the group, 0 if it has none
    pub abstract_sum: u64,
    unused: u64,
    checksum: u64,
}

const _: () = {
    assert!(size_of::<HeaderBlock>() == 256);
    assert!(offset_of!(HeaderBlock, version) == 8);
    assert!(offset_of!(HeaderBlock, store_id) == 16);
    assert!(offset_of!(HeaderBlock, kv_page_bytes) == 32);
    assert!(offset_of!(HeaderBlock, model_hash) == 64);
    assert!(offset_of!(HeaderBlock, token_hash) == 160);
    assert!(offset_of!(HeaderBlock, n_tokens) == 192);
    assert!(offset_of!(HeaderBlock, layout) == 200);
    assert!(offset_of!(HeaderBlock, checksum) == 248);
    assert!(size_of::<Superblock>() == 128);
    assert!(offset_of!(Superblock, seq) == 24);
    assert!(offset_of!(Superblock, token_hash) == 56);
    assert!(offset_of!(Superblock, checksum) == 120);
    assert!(size_of::<EntryHead>() == ENTRY_HEAD_BYTES);
    assert!(offset_of!(EntryHead, token_hash) == 24);
    assert!(offset_of!(EntryHead, checksum) == 56);
    assert!(HEADER_BLOCK_BYTES.is_multiple_of(ALIGN_BYTES) && SUPER_SLOT_BYTES.is_multiple_of(ALIGN_BYTES));
};

/// The bytes of `T` covered by the checksum at its end.
fn checksummed<T: Pod>(value: &T) -> &[u8] {
    let bytes = bytemuck::bytes_of(value);
    bytes.get(..bytes.len() - size_of::<u64>()).unwrap_or(bytes)
}

/// Decodes the `T` at the beginning of `bytes`.
fn read_prefix<T: Pod>(bytes: &[u8]) -> Result<T, Corruption> {
    bytes.get(..size_of::<T>()).map(bytemuck::pod_read_unaligned).ok_or(Corruption::BadMagic)
}

/// Header fields that differ between stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderFields {
    /// see [`HeaderBlock::store_id`]
    pub store_id: u64,
    /// see [`HeaderBlock::n_layer`]
    pub n_layer: u32,
    /// see [`HeaderBlock::kv_page_bytes`]
    pub kv_page_bytes: u64,
    /// see [`HeaderBlock::activation_page_bytes`]
    pub activation_page_bytes: u64,
    /// see [`HeaderBlock::abstract_bytes`]
    pub abstract_bytes: u32,
    /// see [`HeaderBlock::extent_groups`]
    pub extent_groups: u32,
    /// see [`HeaderBlock::arena_extents`]
    pub arena_extents: u32,
    /// model, tokenizer, settings, tokens
    pub hashes: [[u8; 32]; 4],
    /// see [`HeaderBlock::n_tokens`]
    pub n_tokens: u64,
    /// see [`HeaderBlock::layout`]
    pub layout: [u8; 24],
}

impl HeaderBlock {
    /// A header block with its checksum.
    pub fn new(fields: HeaderFields) -> Self {
        let [model_hash, tokenizer_hash, settings_hash, token_hash] = fields.hashes;
        let mut block = HeaderBlock {
            magic: HEADER_MAGIC,
            version: FORMAT_VERSION,
            block_bytes: HEADER_BLOCK_BYTES as u32,
            store_id: fields.store_id,
            n_layer: fields.n_layer,
            page_tokens: PAGE_TOKENS,
            kv_page_bytes: fields.kv_page_bytes,
            activation_page_bytes: fields.activation_page_bytes,
            abstract_bytes: fields.abstract_bytes,
            extent_groups: fields.extent_groups,
            arena_extents: fields.arena_extents,
            model_hash,
            tokenizer_hash,
            settings_hash,
            token_hash,
            n_tokens: fields.n_tokens,
            layout: fields.layout,
            ..HeaderBlock::zeroed()
        };
        block.checksum = xxh3_64(checksummed(&block));
        block
    }

    /// The whole block, zero-padded.
    pub fn encode(&self) -> Vec<u8> {
        padded(bytemuck::bytes_of(self), HEADER_BLOCK_BYTES as usize)
    }

    /// Decodes a header block.
    ///
    /// # Errors
    /// The reason to reject it. The version is checked before the checksum, to tell an older file from a corrupt one.
    pub fn decode(bytes: &[u8]) -> Result<Self, Corruption> {
        let block: HeaderBlock = read_prefix(bytes)?;
        if block.magic != HEADER_MAGIC {
            return Err(Corruption::BadMagic);
        }
        if block.version != FORMAT_VERSION {
            return Err(Corruption::Version(block.version));
        }
        if block.checksum != xxh3_64(checksummed(&block)) {
            return Err(Corruption::Checksum);
        }
        Ok(block)
    }
}

/// Fields of the superblock of one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SuperFields {
    /// see [`Superblock::store_id`]
    pub store_id: u64,
    /// see [`Superblock::seq`]
    pub seq: u64,
    /// see [`Superblock::n_groups`]
    pub n_groups: u64,
    /// see [`Superblock::n_committed`]
    pub n_committed: u64,
    /// see [`Superblock::n_tokens`]
    pub n_tokens: u64,
    /// see [`Superblock::token_hash`]
    pub token_hash: [u8; 32],
    /// see [`Superblock::arena_bytes`]
    pub arena_bytes: u64,
}

impl Superblock {
    /// A superblock with its checksum.
    pub fn new(fields: SuperFields) -> Self {
        let mut block = Superblock {
            magic: SUPER_MAGIC,
            version: FORMAT_VERSION,
            store_id: fields.store_id,
            seq: fields.seq,
            n_groups: fields.n_groups,
            n_committed: fields.n_committed,
            n_tokens: fields.n_tokens,
            token_hash: fields.token_hash,
            arena_bytes: fields.arena_bytes,
            ..Superblock::zeroed()
        };
        block.checksum = xxh3_64(checksummed(&block));
        block
    }

    /// The whole slot, zero-padded.
    pub fn encode(&self) -> Vec<u8> {
        padded(bytemuck::bytes_of(self), SUPER_SLOT_BYTES as usize)
    }

    /// Decodes a slot of the store `store_id`.
    ///
    /// # Errors
    /// The reason to reject it.
    pub fn decode(bytes: &[u8], store_id: u64) -> Result<Self, Corruption> {
        let block: Superblock = read_prefix(bytes)?;
        if block.magic != SUPER_MAGIC {
            return Err(Corruption::BadMagic);
        }
        if block.version != FORMAT_VERSION {
            return Err(Corruption::Version(block.version));
        }
        if block.checksum != xxh3_64(checksummed(&block)) {
            return Err(Corruption::Checksum);
        }
        if block.store_id != store_id {
            return Err(Corruption::Foreign);
        }
        Ok(block)
    }

    /// Offset in the index of the slot of commit `seq`.
    pub fn slot_offset(seq: u64) -> u64 {
        (seq % 2) * SUPER_SLOT_BYTES
    }
}

/// Group entry: the commit that made the group visible, and the checksum of each of its pages (0: missing).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupEntry {
    /// index of the group
    pub group: u32,
    /// commit that makes it visible
    pub seq: u64,
    /// see [`HeaderBlock::store_id`]
    pub store_id: u64,
    /// hash of all tokens up to the end of this group
    pub token_hash: [u8; 16],
    /// checksum of the abstracts, 0 if there are none
    pub abstract_sum: u64,
    /// checksums by kind, then by layer
    pub page_sums: Vec<u64>,
}

impl GroupEntry {
    /// Encodes the entry into `entry_bytes` bytes.
    pub fn encode(&self, entry_bytes: usize) -> Vec<u8> {
        let head = EntryHead {
            magic: ENTRY_MAGIC,
            group: self.group,
            seq: self.seq,
            store_id: self.store_id,
            token_hash: self.token_hash,
            abstract_sum: self.abstract_sum,
            unused: 0,
            checksum: 0,
        };
        let mut bytes = bytemuck::bytes_of(&head).to_vec();
        bytes.extend_from_slice(bytemuck::cast_slice(&self.page_sums));
        let mut bytes = padded(&bytes, entry_bytes);
        let sum = xxh3_64(&bytes);
        if let Some(place) = bytes.get_mut(ENTRY_HEAD_BYTES - 8..ENTRY_HEAD_BYTES) {
            place.copy_from_slice(&sum.to_le_bytes());
        }
        bytes
    }

    /// Decodes the entry of `group` with `n_sums` page checksums.
    ///
    /// # Errors
    /// The reason to reject it. An entry of zeros (a hole) is `BadMagic`.
    pub fn decode(bytes: &[u8], group: u32, store_id: u64, n_sums: usize) -> Result<Self, Corruption> {
        let head: EntryHead = read_prefix(bytes)?;
        if head.magic != ENTRY_MAGIC {
            return Err(Corruption::BadMagic);
        }
        let mut whole = bytes.to_vec();
        if let Some(place) = whole.get_mut(ENTRY_HEAD_BYTES - 8..ENTRY_HEAD_BYTES) {
            place.fill(0);
        }
        if head.checksum != xxh3_64(&whole) {
            return Err(Corruption::Checksum);
        }
        if head.store_id != store_id || head.group != group {
            return Err(Corruption::Foreign);
        }
        let sums = bytes.get(ENTRY_HEAD_BYTES..ENTRY_HEAD_BYTES + n_sums * 8).ok_or(Corruption::BadMagic)?;
        let page_sums = sums.chunks_exact(8).map(bytemuck::pod_read_unaligned).collect();
        let EntryHead { seq, token_hash, abstract_sum, .. } = head;
        Ok(GroupEntry { group, seq, store_id, token_hash, abstract_sum, page_sums })
    }
}

fn padded(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut all = bytes.to_vec();
    all.resize(len, 0);
    all
}

/// Checksum of a payload, seeded with its identity: the same bytes at another place, in another store or after other
/// tokens have another checksum. Never 0, because 0 means that there is no page.
pub fn page_sum(store_id: u64, page: PageId, token_hash: &[u8; 16], payload: &[u8]) -> u64 {
    let mut identity = [0u8; 40];
    let fields: [&[u8]; 5] = [
        &store_id.to_le_bytes(),
        &(page.kind.index() as u64).to_le_bytes(),
        &page.layer.to_le_bytes(),
        &page.group.to_le_bytes(),
        token_hash,
    ];
    for (place, byte) in identity.iter_mut().zip(fields.into_iter().flatten()) {
        *place = *byte;
    }
    xxh3_64_with_seed(payload, xxh3_64(&identity)).max(1)
}

/// Checksum of the abstract row of a group. Never 0.
pub fn abstract_sum(store_id: u64, group: u32, token_hash: &[u8; 16], row: &[u8]) -> u64 {
    page_sum(!store_id, PageId::kv(u32::MAX, group), token_hash, row)
}
