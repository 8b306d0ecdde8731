//! stub
use super::error::KvError;
use super::store::{PageId, Store};
use std::collections::HashMap;
use std::sync::Arc;
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    Ram,
    DiskOnly,
}
#[derive(Debug)]
pub enum LowerError {
    Missing(PageId),
}
impl From<LowerError> for KvError {
    fn from(_: LowerError) -> KvError {
        KvError::TransferGone
    }
}
#[derive(Debug, Default, Clone, Copy)]
pub struct LowerUse {}
#[derive(Default)]
pub struct Lower {
    pages: HashMap<PageId, Arc<Vec<u8>>>,
}
impl Lower {
    pub fn put(&mut self, page: PageId, bytes: &[u8], keep: Keep) -> Result<(), LowerError> {
        if keep == Keep::Ram {
            self.pages.insert(page, Arc::new(bytes.to_vec()));
        }
        Ok(())
    }
    pub fn take(&mut self, page: PageId) -> Result<Arc<Vec<u8>>, LowerError> {
        self.pages.get(&page).cloned().ok_or(LowerError::Missing(page))
    }
    pub fn plan(&mut self, _: &[PageId], _: bool) {}
    pub fn pump(&mut self) -> Result<(), LowerError> {
        Ok(())
    }
    pub fn truncate(&mut self, n: u32) {
        self.pages.retain(|p, _| p.group < n)
    }
    pub fn append_tokens(&mut self, _: &[u32]) {}
    pub fn flush(&mut self) -> Result<(), LowerError> {
        Ok(())
    }
    pub fn close(self) -> Result<(), LowerError> {
        Ok(())
    }
    pub fn attach(&mut self, _: Store) {}
    pub fn notices(&mut self) -> Vec<String> {
        Vec::new()
    }
    pub fn usage(&self) -> LowerUse {
        LowerUse {}
    }
}
