//! Any folder, with the faults of a list: the disk that every test of the store can ask for.
//!
//! ```text
//! PageStore, Io ─► FaultInjectingFolder ─ rule: (operation, file, which one) ─► fault, or ─► the folder beneath
//! ```
//! A rule waits for `skip` operations that match, then strikes `times` of them. A ring's reads pass through
//! [`Storage::adjust`], so that a ring meets the same faults as a positioned read; a file with rules on writes is not given
//! to the ring, because a write that has happened cannot be torn afterwards.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::kv::store::error::StoreError;
use crate::kv::store::storage::{Folder, IoOp, LockGuard, OpenHow, Storage};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// reads or writes only this many bytes, rounded down to a block where the file is direct
    Short(usize),
    /// EINTR
    Interrupted,
    /// EAGAIN
    Again,
    /// EIO
    Failed,
    /// ENOSPC
    NoSpace,
    /// EACCES
    Denied,
    /// writes the first bytes only, and says that all is well
    Torn(usize),
    /// turns one bit of what is read or written
    BitFlip(usize),
    /// this operation and every later one fails: the power is gone
    PowerCut,
}

/// What a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultOp {
    /// `read_at`
    Read,
    /// `write_at`
    Write,
    /// `sync`
    Sync,
    /// `set_len` and `allocate`
    Grow,
    /// opening a file
    Open,
}

/// One entry of the list.
#[derive(Debug, Clone)]
pub struct Rule {
    /// which operation
    pub op: FaultOp,
    /// beginning of the file's name
    pub file: &'static str,
    /// matching operations that pass before
    pub skip: u64,
    /// operations that are struck
    pub times: u64,
    /// what happens to them
    pub fault: Fault,
}

impl Rule {
    /// Every such operation, from the first.
    pub fn always(op: FaultOp, file: &'static str, fault: Fault) -> Self {
        Rule { op, file, skip: 0, times: u64::MAX, fault }
    }

    /// One such operation, after `skip` others.
    pub fn once(op: FaultOp, file: &'static str, skip: u64, fault: Fault) -> Self {
        Rule { op, file, skip, times: 1, fault }
    }
}

#[derive(Debug, Default)]
struct Plan {
    rules: Mutex<Vec<Rule>>,
    n_struck: AtomicU64,
    dead: Mutex<bool>,
}

impl Plan {
    fn rules(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dead(&self) -> MutexGuard<'_, bool> {
        self.dead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault that strikes this operation.
    fn strike(&self, op: FaultOp, file: &str) -> Option<Fault> {
        if *self.dead() {
            return Some(Fault::Failed);
        }
        let mut struck = None;
        for rule in self.rules().iter_mut().filter(|r| r.op == op && file.starts_with(r.file)) {
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if rule.times > 0 && struck.is_none() {
                rule.times -= 1;
                struck = Some(rule.fault);
            }
        }
        if struck.is_some() {
            self.n_struck.fetch_add(1, Ordering::Relaxed);
        }
        if struck == Some(Fault::PowerCut) {
            *self.dead() = true;
        }
        struck
    }
}

fn as_error(fault: Fault) -> Option<io::Error> {
    Some(match fault {
        Fault::Interrupted => ErrorKind::Interrupted.into(),
        Fault::Again => ErrorKind::WouldBlock.into(),
        Fault::NoSpace => ErrorKind::StorageFull.into(),
        Fault::Denied => ErrorKind::PermissionDenied.into(),
        Fault::Failed | Fault::PowerCut => io::Error::other("Input/output error (injected)"),
        Fault::Short(_) | Fault::Torn(_) | Fault::BitFlip(_) => return None,
    })
}

fn flip(buf: &mut [u8], bit: usize) {
    let n_bits = buf.len() * 8;
    if let Some(byte) = bit.checked_rem(n_bits).and_then(|bit| buf.get_mut(bit / 8)) {
        *byte ^= 1 << (bit % 8);
    }
}

/// A folder with faults. Clones share the list.
#[derive(Debug, Clone)]
pub struct FaultInjectingFolder {
    inner: Arc<dyn Folder>,
    plan: Arc<Plan>,
}

impl FaultInjectingFolder {
    /// No faults yet.
    pub fn new(inner: Arc<dyn Folder>) -> Self {
        FaultInjectingFolder { inner, plan: Arc::default() }
    }

    /// Adds a rule.
    pub fn add(&self, rule: Rule) {
        self.plan.rules().push(rule);
    }

    /// Forgets all rules, and brings the power back.
    pub fn clear(&self) {
        self.plan.rules().clear();
        *self.plan.dead() = false;
    }

    /// Operations struck so far.
    pub fn n_struck(&self) -> u64 {
        self.plan.n_struck.load(Ordering::Relaxed)
    }
}

impl Folder for FaultInjectingFolder {
    fn open(&self, name: &str, how: OpenHow) -> io::Result<Arc<dyn Storage>> {
        if let Some(error) = self.plan.strike(FaultOp::Open, name).and_then(as_error) {
            return Err(error);
        }
        let inner = self.inner.open(name, how)?;
        Ok(Arc::new(FaultyFile { inner, name: name.to_owned(), plan: Arc::clone(&self.plan) }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        self.inner.names()
    }

    fn sync(&self) -> io::Result<()> {
        match self.plan.strike(FaultOp::Sync, "folder").and_then(as_error) {
            Some(error) => Err(error),
            None => self.inner.sync(),
        }
    }

    fn is_there(&self) -> bool {
        self.inner.is_there()
    }

    fn lock(&self, create: bool) -> Result<Box<dyn LockGuard>, StoreError> {
        match self.plan.strike(FaultOp::Open, "lock").and_then(as_error) {
            Some(error) => Err(StoreError::from_io("open", "lock", 0, error)),
            None => self.inner.lock(create),
        }
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

#[derive(Debug)]
struct FaultyFile {
    inner: Arc<dyn Storage>,
    name: String,
    plan: Arc<Plan>,
}

impl FaultyFile {
    fn strike(&self, op: FaultOp) -> Option<Fault> {
        self.plan.strike(op, &self.name)
    }

    fn shortened(&self, n: usize, len: usize) -> usize {
        let align = crate::kv::store::storage::step_align(&*self.inner);
        // At least one block, or nothing would ever move on; 0 would be the end of the file.
        (n / align * align).max(align).min(len)
    }
}

impl Storage for FaultyFile {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let result = self.inner.read_at(buf, offset);
        self.adjust(IoOp::Read, offset, buf, result)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        match self.strike(FaultOp::Write) {
            None => self.inner.write_at(buf, offset),
            Some(Fault::Short(n)) => {
                let n = self.shortened(n, buf.len());
                self.inner.write_at(buf.get(..n).unwrap_or(buf), offset)
            }
            Some(Fault::Torn(_)) if buf.is_empty() => Ok(0),
            Some(Fault::Torn(n)) => {
                let n = self.shortened(n, buf.len());
                self.inner.write_at(buf.get(..n).unwrap_or(buf), offset)?;
                Ok(buf.len())
            }
            Some(Fault::BitFlip(bit)) => {
                // The copy has the alignment that a direct file asks for only by chance, so such files are not flipped here.
                let mut copy = buf.to_vec();
                flip(&mut copy, bit);
                self.inner.write_at(&copy, offset)
            }
            Some(fault) => Err(as_error(fault).unwrap_or_else(|| ErrorKind::Other.into())),
        }
    }

    fn sync(&self) -> io::Result<()> {
        match self.strike(FaultOp::Sync).and_then(as_error) {
            Some(error) => Err(error),
            None => self.inner.sync(),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        match self.strike(FaultOp::Grow).and_then(as_error) {
            Some(error) => Err(error),
            None => self.inner.set_len(len),
        }
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        match self.strike(FaultOp::Grow).and_then(as_error) {
            Some(error) => Err(error),
            None => self.inner.allocate(len),
        }
    }

    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }

    fn ring_file(&self) -> Option<&File> {
        let on_writes = self.plan.rules().iter().any(|r| r.op == FaultOp::Write);
        if on_writes { None } else { self.inner.ring_file() }
    }

    fn stop_direct(&self) {
        self.inner.stop_direct();
    }

    fn adjust(&self, op: IoOp, _offset: u64, buf: &mut [u8], result: io::Result<usize>) -> io::Result<usize> {
        if op == IoOp::Write {
            return result;
        }
        match self.strike(FaultOp::Read) {
            None => result,
            Some(Fault::Short(n)) => result.map(|got| got.min(self.shortened(n, buf.len()))),
            Some(Fault::Torn(n)) => {
                buf.iter_mut().skip(n).for_each(|b| *b = 0);
                result
            }
            Some(Fault::BitFlip(bit)) => {
                flip(buf, bit);
                result
            }
            Some(fault) => Err(as_error(fault).unwrap_or_else(|| ErrorKind::Other.into())),
        }
    }
}
