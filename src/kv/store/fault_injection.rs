//! Fault injection: wraps any folder, and fails the operations that a list of rules selects.
//!
//! ```text
//! PageStore, Io ─► FaultInjectingFolder ─ rule (operation, file, count) ─► fault, or ─► inner folder
//! ```
//! A rule skips `skip` matching operations, then injects its fault into the next `times`. Reads of a ring pass through
//! [`Storage::adjust`], so they get the same faults as positioned reads. A file with rules on writes is not given to
//! the ring, because a completed write cannot be torn afterwards.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::kv::store::error::StoreError;
use crate::kv::store::storage::{Folder, IoOp, LockGuard, OpenMode, Storage};

/// Kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// reads or writes at most this many bytes, rounded down to a block if the file is direct
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
    /// writes only the first bytes, but reports success
    Torn(usize),
    /// flips one bit of the data read or written
    BitFlip(usize),
    /// this and every later operation fails, as after a power failure
    PowerCut,
}

/// Operation that a rule matches.
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

/// One injection rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// which operation
    pub op: FaultOp,
    /// prefix of the file name
    pub file: &'static str,
    /// matching operations to skip
    pub skip: u64,
    /// operations to fail
    pub times: u64,
    /// fault to inject
    pub fault: Fault,
}

impl Rule {
    /// A rule for every such operation.
    pub fn always(op: FaultOp, file: &'static str, fault: Fault) -> Self {
        Rule { op, file, skip: 0, times: u64::MAX, fault }
    }

    /// A rule for one such operation, after `skip` others.
    pub fn once(op: FaultOp, file: &'static str, skip: u64, fault: Fault) -> Self {
        Rule { op, file, skip, times: 1, fault }
    }
}

#[derive(Debug, Default)]
struct FaultPlan {
    rules: Mutex<Vec<Rule>>,
    n_injected: AtomicU64,
    power_is_cut: Mutex<bool>,
}

impl FaultPlan {
    fn rules(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn power_is_cut(&self) -> MutexGuard<'_, bool> {
        self.power_is_cut.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault for this operation, if a rule matches.
    fn fault_for(&self, op: FaultOp, file: &str) -> Option<Fault> {
        if *self.power_is_cut() {
            return Some(Fault::Failed);
        }
        let mut fault = None;
        for rule in self.rules().iter_mut().filter(|r| r.op == op && file.starts_with(r.file)) {
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if rule.times > 0 && fault.is_none() {
                rule.times -= 1;
                fault = Some(rule.fault);
            }
        }
        if fault.is_some() {
            self.n_injected.fetch_add(1, Ordering::Relaxed);
        }
        if fault == Some(Fault::PowerCut) {
            *self.power_is_cut() = true;
        }
        fault
    }
}

fn to_io_error(fault: Fault) -> Option<io::Error> {
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

/// A folder with faults. Clones share the rules.
#[derive(Debug, Clone)]
pub struct FaultInjectingFolder {
    inner: Arc<dyn Folder>,
    plan: Arc<FaultPlan>,
}

impl FaultInjectingFolder {
    /// A folder without rules.
    pub fn new(inner: Arc<dyn Folder>) -> Self {
        FaultInjectingFolder { inner, plan: Arc::default() }
    }

    /// Adds a rule.
    pub fn add(&self, rule: Rule) {
        self.plan.rules().push(rule);
    }

    /// Removes all rules, and restores the power.
    pub fn clear(&self) {
        self.plan.rules().clear();
        *self.plan.power_is_cut() = false;
    }

    /// Number of faults injected so far.
    pub fn n_injected(&self) -> u64 {
        self.plan.n_injected.load(Ordering::Relaxed)
    }
}

impl Folder for FaultInjectingFolder {
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn Storage>> {
        if let Some(error) = self.plan.fault_for(FaultOp::Open, name).and_then(to_io_error) {
            return Err(error);
        }
        let inner = self.inner.open(name, mode)?;
        Ok(Arc::new(FaultInjectingFile { inner, name: name.to_owned(), plan: Arc::clone(&self.plan) }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        self.inner.names()
    }

    fn sync(&self) -> io::Result<()> {
        match self.plan.fault_for(FaultOp::Sync, "folder").and_then(to_io_error) {
            Some(error) => Err(error),
            None => self.inner.sync(),
        }
    }

    fn exists(&self) -> bool {
        self.inner.exists()
    }

    fn lock(&self, create: bool) -> Result<Box<dyn LockGuard>, StoreError> {
        match self.plan.fault_for(FaultOp::Open, "lock").and_then(to_io_error) {
            Some(error) => Err(StoreError::from_io("open", "lock", 0, error)),
            None => self.inner.lock(create),
        }
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

#[derive(Debug)]
struct FaultInjectingFile {
    inner: Arc<dyn Storage>,
    name: String,
    plan: Arc<FaultPlan>,
}

impl FaultInjectingFile {
    fn fault_for(&self, op: FaultOp) -> Option<Fault> {
        self.plan.fault_for(op, &self.name)
    }

    fn shortened(&self, n: usize, len: usize) -> usize {
        let align = crate::kv::store::storage::step_align(&*self.inner);
        // At least one block, to make progress; 0 would mean the end of the file.
        (n / align * align).max(align).min(len)
    }
}

impl Storage for FaultInjectingFile {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let result = self.inner.read_at(buf, offset);
        self.adjust(IoOp::Read, offset, buf, result)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        match self.fault_for(FaultOp::Write) {
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
                // Direct files must not get here: the copy may not have the alignment they need.
                let mut copy = buf.to_vec();
                flip(&mut copy, bit);
                self.inner.write_at(&copy, offset)
            }
            Some(fault) => Err(to_io_error(fault).unwrap_or_else(|| ErrorKind::Other.into())),
        }
    }

    fn sync(&self) -> io::Result<()> {
        match self.fault_for(FaultOp::Sync).and_then(to_io_error) {
            Some(error) => Err(error),
            None => self.inner.sync(),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        match self.fault_for(FaultOp::Grow).and_then(to_io_error) {
            Some(error) => Err(error),
            None => self.inner.set_len(len),
        }
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        match self.fault_for(FaultOp::Grow).and_then(to_io_error) {
            Some(error) => Err(error),
            None => self.inner.allocate(len),
        }
    }

    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }

    fn ring_file(&self) -> Option<&File> {
        let has_write_rules = self.plan.rules().iter().any(|r| r.op == FaultOp::Write);
        if has_write_rules { None } else { self.inner.ring_file() }
    }

    fn stop_direct(&self) {
        self.inner.stop_direct();
    }

    fn adjust(&self, op: IoOp, _offset: u64, buf: &mut [u8], result: io::Result<usize>) -> io::Result<usize> {
        if op == IoOp::Write {
            return result;
        }
        match self.fault_for(FaultOp::Read) {
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
            Some(fault) => Err(to_io_error(fault).unwrap_or_else(|| ErrorKind::Other.into())),
        }
    }
}
